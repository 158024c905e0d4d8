from __future__ import annotations

import subprocess
import sys

import pytest

FORBIDDEN = ("torch", "transformers", "onnx", "onnxscript", "safetensors")


@pytest.mark.parametrize(
    "module", ["service.__main__", "service.app", "service.engine.decode.engine", "service.runtime.decoder"]
)
def test_serving_never_imports_training_libraries(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({FORBIDDEN}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "[]"


def test_the_engine_knows_neither_fastapi_nor_onnx_runtime() -> None:
    code = "import sys, service.engine.decode.engine; print({'fastapi', 'starlette', 'onnxruntime'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "set()"


def test_the_runtime_does_not_know_http() -> None:
    code = "import sys, service.runtime.decoder; print({'fastapi', 'starlette', 'uvicorn'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "set()"
