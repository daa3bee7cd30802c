# SPDX-License-Identifier: Apache-2.0
# What the scripts of pages call (page_script.h). Of the environment: SOURCES, PREFIX (where Hearth is installed),
# SCRATCH, CXX, STAND_IN_DATA.
set -eEo pipefail
at() { where=$1; }
complain() {
  echo "$where: $*" >&2
  exit 1
}
trap 'echo "$where: failed: $BASH_COMMAND" >&2' ERR
# A script that ends early has not failed yet.
finished=no
trap '[ "$finished" = yes ] || exit 1' EXIT

mkdir -p "$SCRATCH"
cd "$SCRATCH"
export HOME=$SCRATCH PATH=$PREFIX/bin:$PATH
ln -s "$PREFIX" hearth
for folder in examples scripts docs; do ln -s "$SOURCES/$folder" .; done

# Pages set SHORT to what makes a training short, and LESS to what makes a measurement short.
SHORT="" LESS=""
hearth() {
  # Each of their words is an argument.
  # shellcheck disable=SC2086
  case $1 in
    train) command hearth "$@" $SHORT ;;
    bench | tune) command hearth "$@" $LESS ;;
    *) command hearth "$@" ;;
  esac
}
stand_in_data() { [ -d data-sets ] || "$STAND_IN_DATA" data-sets; }

skipped() { echo "$where: not run: $1"; }
check_config() { command hearth config "$1" >/dev/null; }
check_link() {
  local folder=.
  case $1 in */*) folder=${1%/*} ;; esac
  [ -e "$SOURCES/$folder/$2" ] || complain "the link $2 leads nowhere"
}
check_path() { [ -e "$SOURCES/${1#hearth/}" ] || complain "there is no $1"; }
check_quote() { # FILE PATH: each line of FILE stands in PATH, whatever its spaces
  local line
  while IFS= read -r line; do
    line=$(tr -s ' \t' ' ' <<<"$line" | sed 's/^ //; s/ $//')
    [ -z "$line" ] || tr -s ' \t' ' ' <"$SOURCES/$2" | grep -F -e "$line" >/dev/null || complain "$2 has no line \"$line\""
  done <"$1"
}
check_output() { # FILE COMMAND
  local said
  said=$(eval "$2" 2>&1 || true)
  [ "$(tr -s ' \t\n' ' ' <"$1")" = "$(tr -s ' \t\n' ' ' <<<"$said")" ] || complain "$2 prints: $said"
}
check_command() { # LINE: a command of the program and options that it has
  local words word help
  # Placeholders and quoted sequences are words like others.
  read -ra words <<<"$1"
  [ "${words[1]}" != CONFIG.json ] || complain "no command: $1"
  case ${words[1]} in help | --version | --help | '<command>' | COMMAND) return ;; esac
  help=$(command hearth help "${words[1]}" 2>&1) || complain "no such command: $1"
  for word in "${words[@]:2}"; do
    word=${word#[}
    case $word in
      --) break ;;
      --*) word=${word%%[]=|...]*} && grep -q -e " $word\( \|$\)" <<<"$help" || complain "hearth ${words[1]} has no $word: $1" ;;
    esac
  done
}
compile() { # FILE: made into the program FILE without .cpp, against the installed headers and library
  local pc libraries
  pc=$(find -L "$PREFIX" -name hearth.pc)
  read -ra libraries < <(sed -n 's/^Libs: -L${libdir} //p' "$pc")
  "$CXX" -std=c++20 -I"$PREFIX/include" "$1" -o "${1%.cpp}" -L"${pc%/*}/.." "${libraries[@]}"
}
compile_and_run() { # FILE: run if it has a main, else only compiled
  if grep -q 'int main(' "$1"; then
    compile "$1"
    "./${1%.cpp}"
  else
    "$CXX" -std=c++20 -I"$PREFIX/include" -fsyntax-only "$1"
  fi
}
