# Shell integration of muxtap for zsh 5.8 and later: prints OSC 133 marks, and OSC 7 with the directory.
# `emulate -c` reads and runs the functions without aliases and with the options given here.
# A restricted shell refuses redirections.
'builtin' 'eval' '[[ -o restricted ]]' || { 'builtin' 'emulate' 'zsh' '-o' 'no_aliases' '-o' 'no_multibyte' \
    '-o' 'extended_glob' '-o' 'no_xtrace' '-o' 'no_verbose' '-o' 'no_err_exit' '-o' 'no_err_return' \
    '-o' 'no_all_export' '-c' '
if [[ -o interactive && ${TMUX:+tmux}${TERM-} == (tmux|screen)* && ${TERM-} != dumb && -z ${__muxtap_on-} ]] &&
    [[ -c /dev/tty ]] && builtin print -n >/dev/tty; then

# States: 0 at the prompt, 1 a command has started, 2 `D` is printed, 3 before the first prompt.
builtin typeset -g +x __muxtap_on=1 __muxtap_state=3 __muxtap_option= __muxtap_directory= __muxtap_url= \
    __muxtap_now=0 __muxtap_eol= __muxtap_eol_old= __muxtap_eol_set=0 __muxtap_escape=${(#):-27} __muxtap_bell=${(#):-7}
if [[ -n ${MUXTAP_SHELL_NONCE-} && $MUXTAP_SHELL_NONCE != *[^a-zA-Z0-9._-]* ]]; then
    __muxtap_option=";muxtap=$MUXTAP_SHELL_NONCE"
fi
builtin unset MUXTAP_SHELL_NONCE

__muxtap_print() {
    builtin print -rn -- "$__muxtap_escape]$1$__muxtap_bell" >/dev/tty
}

# Prints `D`, after the end (ST) of a string that the command may have left open.
__muxtap_print_end() {
    builtin print -rn -- "$__muxtap_escape\\$__muxtap_escape]133;D$1$__muxtap_option$__muxtap_bell" >/dev/tty
}

# Sets `REPLY` to the percent-encoded bytes of a string.
__muxtap_encode() {
    builtin local MATCH MBEGIN MEND
    REPLY=${1//(#m)[^a-zA-Z0-9\/._~-]/%${(l:2::0:)$(( [##16] #MATCH ))}}
}

# zsh expands PROMPT_EOL_MARK after a command before it prints anything else, the mark of a missing newline
# and the output of hooks included. So `D` is in it while a command runs.
__muxtap_start() {
    builtin local REPLY=
    if (( $#1 <= 4096 )); then
        __muxtap_encode "$1"
    fi
    if [[ -n $REPLY ]] && (( $#REPLY <= 4096 )); then
        __muxtap_print "133;C;cmdline_url=$REPLY$__muxtap_option"
    else
        __muxtap_print "133;C$__muxtap_option"
    fi
    if [[ ${(t)PROMPT_EOL_MARK-} != *(export|readonly)* ]]; then
        __muxtap_eol_set=$+PROMPT_EOL_MARK
        __muxtap_eol_old=${PROMPT_EOL_MARK-%B%S%#%s%b}
        __muxtap_eol="%{$__muxtap_escape\\${__muxtap_escape}]133;D;%?$__muxtap_option$__muxtap_bell%}$__muxtap_eol_old"
        builtin typeset -g PROMPT_EOL_MARK=$__muxtap_eol
    fi
    __muxtap_state=1
}

# Runs before the other hooks; `D` ends the command. A widget may run the hooks while the line editor is active.
__muxtap_end() {
    builtin local printed=0
    if builtin zle; then
        return 0
    fi
    if [[ -n $__muxtap_eol && ${PROMPT_EOL_MARK-} == "$__muxtap_eol" ]]; then
        if [[ -o prompt_sp && -o prompt_cr ]]; then
            printed=1
        fi
        if (( __muxtap_eol_set )); then
            PROMPT_EOL_MARK=$__muxtap_eol_old
        else
            builtin unset PROMPT_EOL_MARK
        fi
    fi
    __muxtap_eol=
    if (( __muxtap_state == 0 )); then
        __muxtap_print_end ""
    elif (( __muxtap_state == 1 && ! printed )); then
        __muxtap_print_end ";$__muxtap_now"
    fi
    if (( __muxtap_state != 3 )); then
        __muxtap_state=2
    fi
}

# Runs after the other hooks, which may have set PS1.
__muxtap_show() {
    builtin local REPLY= mark="%{${__muxtap_escape}]133;B;shell=zsh$__muxtap_option$__muxtap_bell%}"
    if (( __muxtap_state == 3 )) && [[ -z $__muxtap_option ]] && __muxtap_other; then
        precmd_functions=(${precmd_functions:#__muxtap_*})
        preexec_functions=(${preexec_functions:#__muxtap_*})
        return 0
    fi
    __muxtap_place
    if [[ -o prompt_percent && ${(t)PS1} != *readonly* ]]; then
        # A child would see the nonce in an exported prompt.
        if [[ ${(t)PS1} == *export* ]]; then
            mark="%{${__muxtap_escape}]133;B;shell=zsh$__muxtap_bell%}"
        fi
        if [[ $PS1 != *"$mark" ]]; then
            PS1=${PS1//"$mark"}
            # A single `%` at its end is not shown, but would belong to the mark.
            if [[ $PS1 == (|*[^%])(%%)#% ]]; then
                PS1=${PS1%\%}
            fi
            PS1+=$mark
        fi
    fi
    if builtin zle; then
        return 0
    fi
    if [[ $PWD != "$__muxtap_directory" ]]; then
        __muxtap_directory=$PWD
        __muxtap_encode "$PWD"
        __muxtap_url=file://$HOST$REPLY
    fi
    # An inner shell or ssh may have printed another one.
    __muxtap_print "7;$__muxtap_url"
    __muxtap_print "133;A$__muxtap_option"
    __muxtap_state=0
}

# Puts the hooks at their places, again if others have added theirs since.
__muxtap_place() {
    builtin typeset -ga precmd_functions preexec_functions
    if [[ ${precmd_functions[1]-} != __muxtap_precmd || ${precmd_functions[-1]-} != __muxtap_prompt ]]; then
        precmd_functions=(__muxtap_precmd ${precmd_functions:#__muxtap_*} __muxtap_prompt)
    fi
    if [[ ${preexec_functions[-1]-} != __muxtap_preexec ]]; then
        preexec_functions=(${preexec_functions:#__muxtap_*} __muxtap_preexec)
    fi
}

# Whether the integration of kitty, WezTerm, Ghostty, iTerm2, VS Code or powerlevel10k runs in this shell. An
# exported variable comes from another one.
__muxtap_other() {
    (( $+_ksi_state || $+functions[__wezterm_semantic_precmd] || $+functions[_ghostty_precmd] )) ||
        [[ -n ${ITERM_SHELL_INTEGRATION_INSTALLED-} && ${(t)ITERM_SHELL_INTEGRATION_INSTALLED} != *export* ||
            -n ${VSCODE_SHELL_INTEGRATION-} && ${(t)VSCODE_SHELL_INTEGRATION} != *export* ||
            ${POWERLEVEL9K_TERM_SHELL_INTEGRATION-} == true && -n $functions[p10k] ]]
}

# The hooks: a DEBUG trap sees one line of each, and prints nothing in them. `zsh -r` sets the option only after its
# startup files.
__muxtap_precmd() { __muxtap_now=$? && [[ -o restricted ]] || __muxtap_end >/dev/null 2>&1 }
__muxtap_prompt() { [[ -o restricted ]] || __muxtap_show >/dev/null 2>&1 }
__muxtap_preexec() { [[ -o restricted ]] || __muxtap_start "$1" >/dev/null 2>&1 }
__muxtap_place

fi
'; } 2>/dev/null
