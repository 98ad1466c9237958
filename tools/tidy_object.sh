#!/usr/bin/env bash
# What ccache takes for a compiler in `./dev check tidy`: its object is a word that clang-tidy found nothing in the file.
# So a file is looked at again only when its text, a header of it, its options, .clang-tidy or clang-tidy has changed.
# ccache asks for the preprocessed text first: the real compiler gives it. CLANG_TIDY names clang-tidy.
set -euo pipefail

object= source= options=()
while (($#)); do
  case $1 in
    -E) exec c++ "${options[@]}" "$@" ;;
    -o) object=$2 && shift ;;
    -c) ;;
    *.cpp) source=$(realpath -s "$1") ;;
    -I[!/]*) options+=("-I$PWD/${1#-I}") ;;  # ccache made it relative; .clang-tidy knows our headers by whole paths
    *) options+=("$1") ;;
  esac
  shift
done
"$CLANG_TIDY" --quiet "$source" -- "${options[@]}"
echo clean >"$object"
