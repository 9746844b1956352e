# Shell integration of muxtap for dash, busybox ash, mksh and ksh93: OSC 133 marks in PS1, and OSC 7 with the
# directory. These shells run nothing between reading a line and the command, so `C` and the line cannot be had, and
# `D` has a status after an empty line and after Ctrl-C, too. They run nothing when the directory changes: each
# prompt prints it. A PS1 that is set later has no marks.
case ${TMUX:+tmux}${TERM-}/$-/${ZSH_VERSION:+z}${__muxtap_on:+o} in
tmux*/*i*/ | screen*/*i*/)
    if \test "${TERM-}" != dumb && \test -c /dev/tty && { \printf '' >/dev/tty; } 2>/dev/null; then
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

        # An exported PS1 already has marks in a shell within a shell: they stand before and after two edges, which
        # expand to nothing.
        __muxtap_edge='${__muxtap_on+}'
        # Not exported with PS1: a shell that inherits the prompt may be of another kind. `dash`: the shell has no line
        # editor, and the terminal collects the line.
        __muxtap_name=sh
        # What tells the line editor that the marks have no width. dash has no editor, ksh93 knows OSC.
        __muxtap_open='' __muxtap_close='' __muxtap_first=''
        # The end of a string that the command may have left open (ST), for `D`.
        __muxtap_string_end=$(\printf '\033\\')
        case ${BASH_VERSION:+bash}${KSH_VERSION-} in
        *MIRBSD* | *LEGACY*)
            case $PS1 in
            ?"$(\printf '\r')"*)
                __muxtap_open=${PS1%"${PS1#?}"}
                case $PS1 in
                *"$__muxtap_edge"*) ;;
                *) PS1=${PS1#??} ;;
                esac
                ;;
            *) __muxtap_open=$(\printf '\001') ;;
            esac
            # mksh reads the character at the start of PS1.
            __muxtap_close=$__muxtap_open __muxtap_first=$__muxtap_open$(\printf '\r')
            ;;
        '' | bash)
            # Not a program of that name, which busybox may have installed.
            if \test "$(\command -v '[[' 2>/dev/null)" = '[['; then
                __muxtap_open='\[' __muxtap_close='\]'
                # busybox ash reads backslashes once more.
                case ${BASH_VERSION-} in
                '') __muxtap_string_end=$__muxtap_string_end'\' ;;
                esac
            else
                # Only a dash with libedit has an editor, if it is switched on.
                case $__muxtap_flags in
                *[EV]*) ;;
                *) __muxtap_name=dash ;;
                esac
            fi
            ;;
        esac
        case $PS1 in
        *"$__muxtap_edge"*"$__muxtap_edge"*)
            PS1=${PS1#*"$__muxtap_edge"}
            PS1=${PS1%"$__muxtap_edge"*}
            ;;
        esac
        __muxtap_mark() {
            \printf '%s\033]133;%s${__muxtap_option-}\007%s' "$__muxtap_open" "$1" "$__muxtap_close"
        }
        # The substitution keeps `$?` for the person's part of PS1. A restricted shell refuses redirections, and says
        # so in `$-` after its startup files.
        PS1=$__muxtap_first$__muxtap_open'${__muxtap_string_end-}'$__muxtap_close$(__muxtap_mark 'D;$?')$__muxtap_open\
'${__muxtap_on:+$(case $- in (*r*) exit $?;; (*) { set +x -- $?; __muxtap_directory; exit $1; } 2>/dev/null;; esac)}'\
$__muxtap_close$(__muxtap_mark A)$__muxtap_edge$PS1$__muxtap_edge$(__muxtap_mark 'B;shell=${__muxtap_name-}')
        case $__muxtap_flags in
        *a*) \set -a ;;
        esac
    fi
    ;;
esac
