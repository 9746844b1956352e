# What dash, busybox ash, mksh and ksh93 read as `$ENV`, before the integration. Programs that the user's files start
# do not inherit the nonce.
if [ "${MUXTAP_SHELL_ENV+set}" ]; then ENV=$MUXTAP_SHELL_ENV; else unset ENV; fi
if [ "${MUXTAP_SHELL_NONCE+set}" ]; then
    __muxtap_file=$MUXTAP_SHELL_NONCE
    unset MUXTAP_SHELL_NONCE
    MUXTAP_SHELL_NONCE=$__muxtap_file
fi
__muxtap_file=${MUXTAP_SHELL_LOGIN-}
unset MUXTAP_SHELL_ENV MUXTAP_SHELL_LOGIN
if [ "$__muxtap_file" ]; then
    if [ -r /etc/profile ]; then . /etc/profile; fi
    if [ -r ~/.profile ]; then . ~/.profile; fi
fi
if [ "${ENV+set}" ]; then
    # The shell would expand it.
    eval "__muxtap_file=\"$ENV\""
    case $__muxtap_file in
    '~/'*) __muxtap_file=$HOME/${__muxtap_file#'~/'} ;;
    esac
else
    # The defaults of mksh and ksh93.
    case ${KSH_VERSION-} in
    *MIRBSD* | *LEGACY*) __muxtap_file=$HOME/.mkshrc ;;
    ?*) __muxtap_file=$HOME/.kshrc ;;
    *) __muxtap_file= ;;
    esac
fi
if [ "$__muxtap_file" ] && [ -r "$__muxtap_file" ]; then . "$__muxtap_file"; fi
unset __muxtap_file
