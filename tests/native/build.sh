#!/bin/sh
# Builds the core, the reference engine and the C tests without Python: build.sh FOLDER [FLAG...]
# Makes FOLDER/tests, which runs the cases it is given, and FOLDER/libfake.so, the engine they use.
set -eu
folder=$1
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
flags="-std=c11 -D_GNU_SOURCE -DTC_WITHOUT_CUDNN -g -Wall -Wextra -Werror -Wconversion -Wno-sign-conversion -Wshadow"
flags="$flags -I$root/cffi_build/include -I$root/cffi_build/core"
mkdir -p "$folder"
# shellcheck disable=SC2086 # the flags are several words
${CC:-cc} $flags "$@" -shared -fPIC "$root/tests/native/fake_engine.c" -o "$folder/libfake.so"
# shellcheck disable=SC2086
${CC:-cc} $flags "$@" "$root"/cffi_build/core/*.c "$root/cffi_build/engines/reference.c" \
    "$root"/tests/native/driver.c "$root"/tests/native/benchmark.c "$root"/tests/native/*_test.c -o "$folder/tests" -lpthread -ldl -lm
