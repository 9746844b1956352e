# What zsh reads in place of ~/.zshenv, before the integration. zsh then reads the user's other files from the
# restored ZDOTDIR. Programs that these start do not inherit the nonce.
if [[ -n ${MUXTAP_SHELL_ZDOTDIR+set} ]]; then
    export ZDOTDIR="$MUXTAP_SHELL_ZDOTDIR"
else
    unset ZDOTDIR
fi
unset MUXTAP_SHELL_ZDOTDIR
if [[ -n ${MUXTAP_SHELL_NONCE+set} ]]; then
    typeset -g +x MUXTAP_SHELL_NONCE
fi
if [[ -r ${ZDOTDIR-$HOME}/.zshenv ]]; then
    . "${ZDOTDIR-$HOME}/.zshenv"
fi
