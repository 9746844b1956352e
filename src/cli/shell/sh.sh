# Shell integration of muxtap for dash, busybox ash, mksh and ksh93: OSC 133 marks in PS1, and OSC 7 with the
# directory. These shells run nothing between reading a line and the command, so `C` and the line cannot be had, and
# `D` has a status after an empty line and after Ctrl-C, too. They run nothing when the directory changes: each
# prompt prints it. A PS1 that is set later has no marks.
case $-${TMUX:+t}${ZSH_VERSION:+z}${__muxtap_on:+o} in
*i*t)
    if \test "${TERM-}" != dumb; then
        __muxtap_flags=$-
        \set +a
        __muxtap_on=1
        __muxtap_option=
        case ${MUXTAP_SHELL_NONCE-} in
        '' | *[!a-zA-Z0-9._-]*) ;;
        *) __muxtap_option=";muxtap=$MUXTAP_SHELL_NONCE" ;;
        esac
        \unset MUXTAP_SHELL_NONCE
        __muxtap_host=$(\uname -n)

        # Prints the directory: as it is, or each byte percent-encoded.
        __muxtap_directory() {
            case $PWD in
            *[!a-zA-Z0-9/._~-]*)
                \printf '\033]7;file://%s%s\007' "$__muxtap_host" \
                    "$(\printf %s "$PWD" | \od -An -v -tx1 | \tr -d '\n' | \sed 's, 2f,/,g; s, ,%,g')"
                ;;
            *) \printf '\033]7;file://%s%s\007' "$__muxtap_host" "$PWD" ;;
            esac
        }

        # What tells the line editor that the marks have no width. dash has no editor, ksh93 knows OSC.
        __muxtap_open='' __muxtap_close='' __muxtap_first=''
        case ${BASH_VERSION:+bash}${KSH_VERSION-} in
        *MIRBSD* | *LEGACY*)
            case $PS1 in
            ?"$(\printf '\r')"*) __muxtap_open=${PS1%"${PS1#?}"} PS1=${PS1#??} ;;
            *) __muxtap_open=$(\printf '\001') ;;
            esac
            # mksh reads the character at the start of PS1.
            __muxtap_close=$__muxtap_open __muxtap_first=$__muxtap_open$(\printf '\r')
            ;;
        '' | bash)
            if \command -v '[[' >/dev/null 2>&1; then
                __muxtap_open='\[' __muxtap_close='\]'
            fi
            ;;
        esac
        __muxtap_mark() {
            \printf '%s\033]133;%s${__muxtap_option-}\007%s' "$__muxtap_open" "$1" "$__muxtap_close"
        }
        PS1=$__muxtap_first$(__muxtap_mark 'D;$?')$__muxtap_open\
'${__muxtap_on:+$({ set +x; __muxtap_directory; } 2>/dev/null)}'\
$__muxtap_close$(__muxtap_mark A)$PS1$(__muxtap_mark B)
        case $__muxtap_flags in
        *a*) \set -a ;;
        esac
    fi
    ;;
esac
