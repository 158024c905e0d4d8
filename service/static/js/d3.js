// D3 is shipped as one file that leaves a global behind; here it becomes a module like any other.
import "../vendor/d3/d3.min.js";

export default globalThis.d3;
