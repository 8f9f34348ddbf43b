"""`rlhf-lab completion SHELL`: the script by which a shell completes commands, keys and options."""

from __future__ import annotations

import argparse
import sys

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console

# Each asks `rlhf-lab __complete WORD ...`, which prints what the last word can become.
BASH = r"""
_rlhf_lab() {
    local line="${COMP_LINE:0:COMP_POINT}" one current before=""
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[-1]}"
    mapfile -t COMPREPLY < <(rlhf-lab __complete "${words[@]:1}" 2> /dev/null)
    # Bash replaces only what follows the last of these characters.
    [[ "$COMP_WORDBREAKS" == *"="* ]] && before="${current%"${current##*[=:@]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    for one in "${COMPREPLY[@]}"; do
        [[ "$one" == *[=./] ]] && compopt -o nospace 2> /dev/null
    done
    return 0
}
complete -F _rlhf_lab rlhf-lab
"""
ZSH = r"""
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_rlhf_lab() {
    local one
    local -a open whole
    for one in "${(@f)$(rlhf-lab __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
        [[ -z "$one" ]] && continue
        if [[ "$one" == *[=./] ]]; then open+=("$one"); else whole+=("$one"); fi
    done
    compadd -Q -S '' -a open
    compadd -Q -a whole
}
compdef _rlhf_lab rlhf-lab
"""
FISH = r"""
function __rlhf_lab
    set -l words (commandline -opc)
    set -e words[1]
    rlhf-lab __complete $words (commandline -ct) 2> /dev/null
end
complete -c rlhf-lab -f -a '(__rlhf_lab)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(SCRIPTS), help="the shell that reads the script")


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the script. Returns 0."""
    sys.stdout.write(SCRIPTS[options.shell].lstrip("\n"))
    return 0


COMMAND = OptionsCommand(
    "completion",
    "a script for Tab in bash, zsh or fish: source <(rlhf-lab completion bash)",
    "bash",
    usage="{bash,fish,zsh}",
    add_options=add_options,
    action=show,
)
