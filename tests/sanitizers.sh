#!/bin/sh
# Runs the C tests under AddressSanitizer with UndefinedBehaviorSanitizer, then the whole under
# ThreadSanitizer: sanitizers.sh [FOLDER]. Any report fails it.
set -eu
folder=${1:-$(mktemp -d)}
native=$(dirname "$0")/native

"$native/build.sh" "$folder/address" -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
    -fno-sanitize-recover=all
ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 "$folder/address/tests" all

"$native/build.sh" "$folder/thread" -O1 -fsanitize=thread
TSAN_OPTIONS=halt_on_error=1 "$folder/thread/tests" all
