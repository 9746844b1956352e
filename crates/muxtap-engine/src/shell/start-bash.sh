# What bash reads in POSIX mode in place of its startup files, before the integration. Programs that these start do not
# inherit the nonce.
if [[ -n ${MUXTAP_SHELL_ENV+set} ]]; then ENV=$MUXTAP_SHELL_ENV; else builtin unset -v ENV; fi
builtin unset -v MUXTAP_SHELL_ENV
builtin export -n MUXTAP_SHELL_NONCE
# `set +o posix` leaves what POSIX mode has set otherwise. (`${HISTFILE@a}` would be an error before bash 4.4, and end
# the reading of this file.)
builtin set +o posix
builtin shopt -u inherit_errexit 2>/dev/null
if [[ ${HISTFILE-} == ~/.sh_history && $(builtin declare -p HISTFILE) != "declare -"*x" HISTFILE="* ]]; then HISTFILE=~/.bash_history; fi
if [[ ${MAILCHECK-} == 600 && $(builtin declare -p MAILCHECK) != "declare -"*x" MAILCHECK="* ]]; then MAILCHECK=60; fi
if builtin shopt -q login_shell; then
    if [[ -r /etc/profile ]]; then . /etc/profile; fi
    if [[ -r ~/.bash_profile ]]; then . ~/.bash_profile
    elif [[ -r ~/.bash_login ]]; then . ~/.bash_login
    elif [[ -r ~/.profile ]]; then . ~/.profile
    fi
else
    # The file for all users, whose name a distribution puts into its bash.
    for __muxtap_file in /etc/bash.bashrc /etc/bash/bashrc /etc/bashrc; do
        if [[ -r $__muxtap_file ]] && builtin command grep -aqsF "$__muxtap_file" "$BASH"; then
            . "$__muxtap_file"
            break
        fi
    done
    builtin unset -v __muxtap_file
    if [[ -r ~/.bashrc ]]; then . ~/.bashrc; fi
fi
