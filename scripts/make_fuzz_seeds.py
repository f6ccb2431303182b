#!/usr/bin/env python3
"""Writes tests/fuzz/seeds/, which the fuzz targets in tests/fuzz start from. The same bytes every time."""

import base64
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = ROOT / "tests" / "fuzz" / "seeds"
TEXT = "To be, or not: it's 1234 \n\t  Gr\u00fc\u00dfe \U0001f642 <|endoftext|>".encode() + b"\xff\xc3("


def write(target, name, data):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def alphabet():
    """GPT-2's spelling of each byte."""
    visible = [b for b in range(256) if 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(0x100 + i) for i, b in enumerate(hidden)}}


def tokenizer_json():
    for name in ("gpt2", "llama3", "behaviors", "codegen", "deepseek3", "falcon", "fused_unknown", "gemma", "llama2", "llama2_legacy", "words"):
        file = (ROOT / "tests/tokenizer/hugging_face" / f"{name}.json").read_bytes()
        write("tokenizer_json", name, file + b"\0" + (TEXT if name in ("gpt2", "llama3") else TEXT.decode(errors="ignore").encode()))
    old = json.loads((ROOT / "tests/tokenizer/hugging_face/gpt2.json").read_text())
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    write("tokenizer_json", "merges_as_text", json.dumps(old, ensure_ascii=False, indent=1).encode() + b"\0" + TEXT)
    write("tokenizer_json", "char", '{"type":"char","characters":["a","b","\u00e9"]}\0ab\u00e9'.encode())
    write("tokenizer_json", "byte", b'{"type":"byte"}\0' + TEXT)
    write("tokenizer_json", "sentencepiece", (ROOT / "tests/tokenizer/sentencepiece/letters.model").read_bytes())


def chat_template():
    renderings = json.loads((ROOT / "tests/jinja/renderings.json").read_text())
    for path in sorted((ROOT / "tests/jinja/templates").glob("*.jinja")):
        for number in (6, 22):
            variables = {**renderings["common"], "messages": renderings["dialogues"][number], "add_generation_prompt": True}
            write("chat_template", f"{path.stem}_{number}", path.read_bytes() + b"\0" + json.dumps(variables, ensure_ascii=False).encode())
    expressions = (ROOT / "tests/jinja/expressions.txt").read_text().splitlines()
    variables = json.dumps(json.loads((ROOT / "tests/jinja/expressions.json").read_text())["variables"], ensure_ascii=False).encode()
    for number in range(0, len(expressions), 12):
        write("chat_template", f"expressions_{number}", "\n".join(expressions[number:number + 12]).encode() + b"\0" + variables)


def merges():
    spelling = alphabet()
    tokens = [spelling[b] for b in range(256)] + ["th", "the", "\u0120the", "<|endoftext|>"]
    encoder = json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False).encode()
    write("merges", "gpt2", encoder + "\0#version: 0.2\nt h\nth e\n\u0120 the\n\0 the thing".encode() + TEXT)
    ranks = [bytes([b]) for b in range(256)] + [b"th", b"the", b" the", b"aa", b"aaaa", b"whole"]
    lines = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(ranks))
    write("merges", "tiktoken", b"t" + lines + b"\0 the whole aaaaaaa" + TEXT)


def metadata():
    write("metadata", "least", b'{"vocab_size": 65}')
    full = {"vocab_size": 50257, "dtype": "uint16", "tokenizer": "bpe_tokenizer.json", "tokenizer_hash": "0" * 32,
            "bin_hash": "f" * 32, "train": {"tokens": 900, "documents": 9, "bytes": 4000},
            "validation": {"tokens": 100, "documents": 1, "bytes": 400}, "split": "documents", "invalid_utf8_bytes": 3,
            "sources": [{"path": "a.txt", "bytes": 4400}]}
    write("metadata", "full", json.dumps(full, indent=2).encode())


def token_file():
    ids = struct.pack("<8H", *range(0, 1600, 200))
    write("token_file", "raw", b"\1" + ids)
    write("token_file", "raw_32", b"\2" + struct.pack("<4I", 1, 2, 999, 100000))
    write("token_file", "llmc", b"\0" + struct.pack("<256i", 20240520, 1, 8, *[0] * 253) + ids)
    llama3 = struct.pack("<256i", 20240801, 7, 2, *[0] * 253) + struct.pack("<2I", 5, 128000)
    write("token_file", "llmc_llama3", b"\0" + llama3)
    for name, pointers in (("megatron", (0, 6)), ("megatron_reordered", (10, 0))):
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
        index += struct.pack("<2i2q3q", 3, 5 if name == "megatron" else 4, *pointers, 0, 1, 2)
        write("token_file", name, b"\4" + struct.pack("<H", len(index)) + index + ids)
    empty = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 1) + struct.pack("<2i3q", 0, 0, 0, 0, 0)
    write("token_file", "megatron_of_nothing", b"\4" + struct.pack("<H", len(empty)) + empty + ids)


def safetensors():
    header = {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
              "b": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}, "none": {"dtype": "I64", "shape": [0, 3], "data_offsets": [10, 10]}}
    text, values = json.dumps(header).encode(), bytes(range(10))
    write("safetensors", "header", b"h" + text + b"\0" + values)
    write("safetensors", "file", b"f" + struct.pack("<Q", len(text)) + text + values)
    write("safetensors", "nothing", b"h{}\0")
    write("safetensors", "nested", b"h" + b'{"a":' * 5 + b"1" + b"}" * 5 + b"\0")


def http_head():
    write("http_head", "get", b"GET /v1/models?x=1 HTTP/1.1\r\nHost: localhost:8000\r\nConnection: close\r\n\r\n")
    write("http_head", "post", b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nContent-Length: 17\r\nExpect: 100-continue\r\n"
          b"Authorization: Bearer abc\r\nContent-Type: application/json\r\n\r\n")
    write("http_head", "old", b"GET http://proxy/ HTTP/1.0\r\nConnection: keep-alive, upgrade\r\nX-Empty:\r\n\r\n")
    write("http_head", "chunks", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    write("http_head", "address", b"GET http://[::1]:80/ HTTP/1.1\r\nHost: [::1]\r\n\r\n")


def http_chunks():
    write("http_chunks", "two", b"\0" + b"5\r\nhello\r\n00c;x=y ; z\r\n, wide world\r\n0\r\n\r\nGET")
    write("http_chunks", "trailer", b"\3" + b"1 ;a=\"b\"\r\na\r\n0\r\nExpires: never\r\nX: \r\n\r\n")
    write("http_chunks", "empty", b"\7" + b"0\r\n\r\n")
    write("http_chunks", "large", b"\377" + b"3e8\r\n" + b"z" * 1000 + b"\r\n0\r\n\r\n")


if __name__ == "__main__":
    for target in (tokenizer_json, chat_template, merges, metadata, token_file, safetensors, http_head, http_chunks):
        target()
