# Shell integration of muxtap for bash 4.4 and later: prints OSC 133 marks, and OSC 7 with the directory.
# Builtins are quoted against aliases. Marks go to the terminal; errors and the lines of `set -x` to /dev/null.
# A restricted shell refuses redirections once its startup files are read.
\builtin shopt -q restricted_shell || {
if [[ $- == *i* && ${TMUX:+tmux}${TERM-} == @(tmux|screen)* && ${TERM-} != dumb && -z ${__muxtap_on-} ]] &&
    ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) &&
    [[ ${PS1+${PS1@a}}${PS0+${PS0@a}}${PROMPT_COMMAND+${PROMPT_COMMAND@a}} != *r* ]] &&
    [[ -c /dev/tty ]] && \builtin true >/dev/tty; then

# States: 0 at the prompt, 1 a command has started, 2 `D` is printed, 3 before the first prompt.
\builtin declare +x __muxtap_on=1 __muxtap_state=3 __muxtap_status=0 __muxtap_now= __muxtap_option= \
    __muxtap_directory= __muxtap_url= __muxtap_number= __muxtap_placed=
\builtin declare +x -a __muxtap_pipe
if [[ -n ${MUXTAP_SHELL_NONCE-} && $MUXTAP_SHELL_NONCE != *[!a-zA-Z0-9._-]* ]]; then
    __muxtap_option=";muxtap=$MUXTAP_SHELL_NONCE"
fi
\builtin unset -v MUXTAP_SHELL_NONCE
# With `set -a`, the assignments exported them.
\builtin declare +x __muxtap_on __muxtap_option

# PS1 and PS0 may be exported. In a child the variables are unset, and both parts are inert.
__muxtap_ps1='\[\e]133;B;shell=bash${__muxtap_option-}\a\]'
__muxtap_ps0='${__muxtap_on:+$({ __muxtap_start; } 3>&1 >/dev/null 2>&1)${__muxtap_on:$((__muxtap_state=1,1))}}'
# bash 5.1 and later restore `$?` and PIPESTATUS before each entry of PROMPT_COMMAND. An older bash has one
# entry, so `__muxtap_return` restores both. `&& case` keeps a failure from the ERR trap and from `set -e`. An older
# bash also exports the entries with PROMPT_COMMAND: in a child they only keep `$?`.
__muxtap_entry_first='{ __muxtap_first; } >/dev/null 2>&1'
__muxtap_entry_last='{ __muxtap_last; } >/dev/null 2>&1'
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
    __muxtap_entry_first='{ case ${__muxtap_on-} in 1) __muxtap_first; case ${#__muxtap_pipe[*]} in'
    __muxtap_entry_first+=' 2) __muxtap_return 0 | __muxtap_return 1 && case : in esac;;'
    __muxtap_entry_first+=' 3) __muxtap_return 0 | __muxtap_return 1 | __muxtap_return 2 && case : in esac;;'
    __muxtap_entry_first+=' 4) __muxtap_return 0 | __muxtap_return 1 | __muxtap_return 2 | __muxtap_return 3 &&'
    __muxtap_entry_first+=' case : in esac;;'
    __muxtap_entry_first+=' *) __muxtap_return && case : in esac;; esac;;'
    __muxtap_entry_first+=' *) (\exit $?) && case : in esac;; esac; } >/dev/null 2>&1'
    __muxtap_entry_last='{ case ${__muxtap_on-} in 1) __muxtap_last;; esac; } >/dev/null 2>&1'
fi

__muxtap_return() {
    \builtin return "${__muxtap_pipe[${1-0}]}"
}

__muxtap_print() {
    \builtin printf '\e]133;%s%s\a' "$1" "$__muxtap_option" >/dev/tty || \builtin true
}

# Prints `D`, after the end (ST) of a string that the command may have left open.
__muxtap_print_end() {
    \builtin printf '\e\\\e]133;D%s%s\a' "$1" "$__muxtap_option" >/dev/tty || \builtin true
}

# Sets `__muxtap_encoded` to the percent-encoded bytes of a string.
__muxtap_encode() {
    \builtin local LC_ALL=C __muxtap_rest="$1" __muxtap_part
    __muxtap_encoded=
    while [[ -n $__muxtap_rest ]]; do
        __muxtap_part=${__muxtap_rest%%[!a-zA-Z0-9/._~-]*}
        __muxtap_encoded+=$__muxtap_part
        __muxtap_rest=${__muxtap_rest:${#__muxtap_part}}
        if [[ -n $__muxtap_rest ]]; then
            \builtin printf -v __muxtap_part %d "'${__muxtap_rest:0:1}"
            \builtin printf -v __muxtap_part %%%02X "$((__muxtap_part & 255))"
            __muxtap_encoded+=$__muxtap_part
            __muxtap_rest=${__muxtap_rest:1}
        fi
    done
}

# Sets `__muxtap_entry` and `__muxtap_line` to the number and the text of the last history entry.
__muxtap_history() {
    __muxtap_line=$(HISTTIMEFORMAT= \builtin history 1)
    __muxtap_entry=${__muxtap_line#"${__muxtap_line%%[! ]*}"}
    __muxtap_entry=${__muxtap_entry%%[!0-9]*}
    __muxtap_line=${__muxtap_line#*"$__muxtap_entry"}
    # A space or `*`, and a space.
    __muxtap_line=${__muxtap_line:2}
}

# Writes `C` to descriptor 3, with the line if it is in the history. bash prints it after what others have in PS0.
# A last entry that is not new is the line only if the history leaves out nothing but duplicates.
__muxtap_start() {
    \builtin local - __muxtap_line __muxtap_entry __muxtap_encoded= "__muxtap_control=:${HISTCONTROL-}:"
    \builtin set +aeux
    if [[ -o history ]]; then
        __muxtap_history
        if [[ -n $__muxtap_entry && ${#__muxtap_line} -le 4096 && ( $__muxtap_entry == "$__muxtap_number" ||
            -z ${HISTIGNORE-} && $__muxtap_control != *:ignoreboth:* && $__muxtap_control != *:ignorespace:* ) ]]; then
            __muxtap_encode "$__muxtap_line"
        fi
    fi
    if [[ -n $__muxtap_encoded && ${#__muxtap_encoded} -le 4096 ]]; then
        __muxtap_encoded=";cmdline_url=$__muxtap_encoded"
    else
        __muxtap_encoded=
    fi
    \builtin printf '\e]133;C%s%s\a' "$__muxtap_encoded" "$__muxtap_option" >&3
}

__muxtap_end() {
    case $__muxtap_state in
    0) __muxtap_print_end '' ;;
    1) __muxtap_print_end ";$__muxtap_status" ;;
    esac
    __muxtap_state=2
}

# Switches options on again that were on. `local -` would do that, too, but it also switches the history on, and before
# 5.1 bash would record the further lines of PROMPT_COMMAND.
__muxtap_restore() {
    case $__muxtap_options in *a*) \builtin set -a ;; esac
    case $__muxtap_options in *u*) \builtin set -u ;; esac
    case $__muxtap_options in *e*) \builtin set -e ;; esac
    case $__muxtap_options in *x*) \builtin set -x ;; esac
}

# Runs before the other prompt commands, whose output does not belong to the command.
__muxtap_first() {
    __muxtap_now=$? __muxtap_pipe=("${PIPESTATUS[@]}")
    \builtin local "__muxtap_options=$-"
    \builtin set +aeux
    # Differs after `!` and with `pipefail`; `$?` is the one to keep.
    if [[ ${__muxtap_pipe[${#__muxtap_pipe[*]} - 1]} != "$__muxtap_now" ]]; then
        __muxtap_pipe=("$__muxtap_now")
    fi
    if [[ $__muxtap_state == [01] ]]; then
        __muxtap_status=$__muxtap_now
        __muxtap_end
    fi
    __muxtap_restore
}

# Runs after the other prompt commands, which may have set PS1.
__muxtap_last() {
    \builtin local "__muxtap_now=$?" "__muxtap_options=$-" __muxtap_encoded __muxtap_line __muxtap_entry
    \builtin set +aeux
    if [[ $__muxtap_state == 3 && -z $__muxtap_option ]] && __muxtap_other; then
        __muxtap_place off
        __muxtap_restore
        return 0
    fi
    if [[ $__muxtap_state == [01] ]]; then
        __muxtap_status=$__muxtap_now
        __muxtap_end
    fi
    if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
        __muxtap_number=$HISTCMD
    else
        __muxtap_history
        __muxtap_number=$((__muxtap_entry + 1))
    fi
    __muxtap_place
    __muxtap_show
    __muxtap_restore
}

# Prints the directory and `A`, and adds the parts of PS1 and PS0. Without `promptvars` these would not expand,
# and there are no marks. An inner shell or ssh may have printed another directory.
__muxtap_show() {
    \builtin local __muxtap_tail __muxtap_close
    if [[ $PWD != "$__muxtap_directory" ]]; then
        __muxtap_directory=$PWD
        __muxtap_encode "$PWD"
        __muxtap_url=file://$HOSTNAME$__muxtap_encoded
    fi
    \builtin printf '\e]7;%s\a' "$__muxtap_url" >/dev/tty || \builtin true
    if ! \builtin shopt -q promptvars; then
        __muxtap_state=3
        \builtin return 0
    fi
    if [[ ${PS1-} != *"$__muxtap_ps1" ]]; then
        PS1=${PS1-}
        PS1=${PS1//"$__muxtap_ps1"}
        # A single backslash at its end would be a part of the mark.
        __muxtap_tail=${PS1##*[!\\]}
        if ((${#__muxtap_tail} % 2)); then
            PS1+=\\
        fi
        PS1+=$__muxtap_ps1
    fi
    if [[ ${PS0-} != *"$__muxtap_ps0"?(\\]) && -z ${__muxtap_ble-} ]]; then
        PS0=${PS0-}
        PS0=${PS0//"$__muxtap_ps0"}
        # Another `C` may be the last before `\]`: with a byte in between, it would be another command's.
        __muxtap_tail=${PS0%]} __muxtap_close=
        __muxtap_tail=${__muxtap_tail##*[!\\]}
        if [[ $PS0 == *] ]] && ((${#__muxtap_tail} % 2)); then
            PS0=${PS0%\\]} __muxtap_close=\\]
        fi
        # A backslash at its end (ST) would quote the dollar sign. bash halves backslashes twice: of four, one is left.
        __muxtap_tail=${PS0##*[!\\]}
        while ((${#__muxtap_tail} % 4)); do
            PS0+=\\ __muxtap_tail+=\\
        done
        # With a dollar sign at its end, it would be `$$`.
        if [[ $PS0 == *[!\\]'$' || $PS0 == '$' ]]; then
            PS0=${PS0%'$'}'\\$'
        fi
        PS0+=$__muxtap_ps0$__muxtap_close
    fi
    __muxtap_print A
    __muxtap_state=0
}

# Whether kitty's, WezTerm's, Ghostty's, iTerm2's or VS Code's integration runs in this shell. An exported
# variable comes from another one.
__muxtap_other() {
    \builtin declare -p _ksi_prompt || \builtin declare -F __wezterm_semantic_precmd ||
        \builtin declare -F __ghostty_precmd ||
        [[ -n ${ITERM_SHELL_INTEGRATION_INSTALLED-} && ${ITERM_SHELL_INTEGRATION_INSTALLED@a} != *x* ||
            -n ${VSCODE_SHELL_INTEGRATION-} && ${VSCODE_SHELL_INTEGRATION@a} != *x* ]]
}

# Puts the entries first and last in PROMPT_COMMAND, again if others have added theirs since. bash-preexec
# requires these places for its own entries, and calls `precmd_functions` from the first.
__muxtap_place() {
    \builtin local __muxtap_e __muxtap_p __muxtap_s __muxtap_n=$'\n' __muxtap_tail=
    \builtin local -a __muxtap_all
    \builtin local -a __muxtap_old
    if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
        __muxtap_old=("${PROMPT_COMMAND-}")
    else
        __muxtap_old=("${PROMPT_COMMAND[@]}")
    fi
    __muxtap_s="${__muxtap_old[*]-}"
    if [[ -n $__muxtap_s && $__muxtap_s == "$__muxtap_placed" && $# == 0 ]]; then
        \builtin return 0
    fi
    # A string that was assigned since is the first entry, in place of muxtap's: it replaces the first of a person's own.
    if ((${#__muxtap_old[*]} > 2)) && [[ $__muxtap_placed == "$__muxtap_entry_first"* &&
        ${__muxtap_old[*]} != *"$__muxtap_entry_first"* &&
        ${__muxtap_old[${#__muxtap_old[*]} - 1]} == "$__muxtap_entry_last" ]]; then
        __muxtap_old=("${__muxtap_old[0]}" "${__muxtap_old[@]:2}")
    fi
    for __muxtap_e in "${__muxtap_old[@]}"; do
        for __muxtap_p in "$__muxtap_entry_first" "$__muxtap_entry_last"; do
            for __muxtap_s in ' ; ' '; ' ';' "$__muxtap_n"; do
                __muxtap_e=${__muxtap_e//"$__muxtap_p$__muxtap_s"}
                __muxtap_e=${__muxtap_e//"$__muxtap_s$__muxtap_p"}
            done
            if [[ $__muxtap_e == "$__muxtap_p" ]]; then
                __muxtap_e=
            fi
            __muxtap_e=${__muxtap_e//"$__muxtap_p"/:}
        done
        for __muxtap_s in __bp_interactive_mode '__bp_install "$_"'; do
            if [[ $__muxtap_n$__muxtap_e == *"$__muxtap_n$__muxtap_s" ]]; then
                __muxtap_tail=$__muxtap_s
                __muxtap_e=${__muxtap_e%"$__muxtap_s"}
                __muxtap_e=${__muxtap_e%"$__muxtap_n"}
            fi
        done
        if [[ -n $__muxtap_e ]]; then
            __muxtap_all+=("$__muxtap_e")
        fi
    done
    if [[ $# == 0 ]]; then
        if [[ "${__muxtap_all[*]-}" != *__bp_precmd_invoke_cmd* ]]; then
            __muxtap_all=("$__muxtap_entry_first" "${__muxtap_all[@]}")
        elif [[ "${precmd_functions[*]-}" != *__muxtap_first* ]]; then
            precmd_functions=(__muxtap_first "${precmd_functions[@]}")
        fi
        __muxtap_all+=("$__muxtap_entry_last")
    fi
    if [[ -n $__muxtap_tail ]]; then
        __muxtap_all+=("$__muxtap_tail")
    fi
    if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
        \builtin local "IFS=$__muxtap_n"
        PROMPT_COMMAND="${__muxtap_all[*]-}"
        __muxtap_placed=$PROMPT_COMMAND
    else
        PROMPT_COMMAND=("${__muxtap_all[@]}")
        __muxtap_placed="${PROMPT_COMMAND[*]-}"
    fi
}

if \builtin declare -F blehook; then
    # ble.sh draws the prompt itself. Its hooks know the line.
    __muxtap_ble=1
    __muxtap_ble_start() {
        \builtin local - __muxtap_encoded=
        \builtin set +aeux
        if [[ ${#1} -le 4096 ]]; then
            __muxtap_encode "$1"
        fi
        if [[ -n $__muxtap_encoded && ${#__muxtap_encoded} -le 4096 ]]; then
            __muxtap_print "C;cmdline_url=$__muxtap_encoded"
        else
            __muxtap_print C
        fi
        __muxtap_state=1
    }
    __muxtap_ble_prompt() {
        \builtin local - __muxtap_encoded=
        \builtin set +aeux
        if [[ $__muxtap_state == [01] ]]; then
            __muxtap_end
        fi
        __muxtap_show
    }
    blehook PREEXEC!=__muxtap_ble_start POSTEXEC!=__muxtap_first PRECMD!=__muxtap_ble_prompt
else
    __muxtap_place
fi

fi
} >/dev/null 2>&1
