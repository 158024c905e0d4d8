// Asks the server at argv[2] what the users of deepl-node ask, and prints the answers as JSON.
import { createRequire } from "node:module";
import { readFile, rm, writeFile } from "node:fs/promises";

const deepl = createRequire(process.argv[4])("deepl-node");
const client = new deepl.DeepLClient("any", { serverUrl: process.argv[2], maxRetries: 0 });
const folder = process.argv[3];

const one = await client.translateText("Good morning.", "en", "de");
const many = await client.translateText(["Where is the key?", "The house is old."], null, "de", {
  context: "A house.", splitSentences: "nonewlines", preserveFormatting: true, modelType: "latency_optimized",
});
const tags = await client.translateText("<r>Good <x>morning</x></r>", "en", "de", {
  tagHandling: "xml", ignoreTags: ["x", "y"], outlineDetection: false,
});
await writeFile(`${folder}/in.txt`, "Good morning.\n");
await rm(`${folder}/out.txt`, { force: true });
const handle = await client.uploadDocument(`${folder}/in.txt`, "en", "de");
let status = await client.getDocumentStatus(handle);
while (status.ok() && !status.done()) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  status = await client.getDocumentStatus(handle);
}
await client.downloadDocument(handle, `${folder}/out.txt`);
const usage = await client.getUsage();
const refused = await client.translateText("Hi.", "en", "de", { formality: "more" }).catch((error) => error.message);
console.log(JSON.stringify({
  one, many, tags, usage, refused,
  sources: (await client.getSourceLanguages()).map((language) => language.code),
  targets: (await client.getTargetLanguages()).map((language) => language.code),
  glossaries: await client.listGlossaries(),
  document: await readFile(`${folder}/out.txt`, "utf8"),
}));
