# Shell integration of muxtap for fish 3.1 and later: prints OSC 133 marks, and OSC 7 with the directory.
# fish 4 prints `A`, `C` and `D` itself. Without a nonce, only `B` and the directory are added there.
if status is-interactive; and set -q TMUX; and test "$TERM" != dumb; and not set -q __muxtap_on

    # States: 0 at the prompt, 1 a command has started, 2 `D` is printed, 3 before the first prompt.
    set -gu __muxtap_on 1
    set -gu __muxtap_state 3
    set -gu __muxtap_directory ''
    set -gu __muxtap_option ''
    if set -q MUXTAP_SHELL_NONCE
        if builtin string match -qr '^[a-zA-Z0-9._-]+$' -- "$MUXTAP_SHELL_NONCE"
            set -gu __muxtap_option ";muxtap=$MUXTAP_SHELL_NONCE"
        end
        set -e MUXTAP_SHELL_NONCE
    end

    function __muxtap_mark
        builtin printf '\e]133;%s%s\a' $argv[1] $__muxtap_option >/dev/tty
    end

    # Whether another program prints marks in this shell: fish 4, kitty's, Ghostty's, iTerm2's or VS Code's integration.
    function __muxtap_other
        # 1: switched off; 2: a version that cannot switch.
        if builtin string match -qr '^[4-9]' -- $version
            status test-feature mark-prompt
            builtin test $status -ne 1
        else
            false
        end
        or functions -q __ksi_mark_prompt_start __ghostty_mark_prompt_start iterm2_common __vsc_fish_prompt_start
    end

    function __muxtap_start --on-event fish_preexec
        set -l line (builtin string escape --style=url -- "$argv[1]")
        if builtin test (builtin string length -- "$line") -gt 4096
            __muxtap_mark C
        else
            __muxtap_mark "C;cmdline_url=$line"
        end
        set -g __muxtap_state 1
    end

    function __muxtap_end --on-event fish_postexec
        __muxtap_mark "D;$status"
        set -g __muxtap_state 2
    end

    # Ctrl-C draws a prompt without an event of its own.
    function __muxtap_cancel --on-event fish_cancel
        __muxtap_mark D
        __muxtap_mark A
    end

    function __muxtap_prompt --on-event fish_prompt
        if builtin test $__muxtap_state = 3; and __muxtap_other; and builtin test -z "$__muxtap_option"
            functions -e __muxtap_start __muxtap_end __muxtap_cancel
            set -g __muxtap_state 4
        end
        if builtin test $__muxtap_state = 0
            __muxtap_mark D
        end
        if builtin test "$PWD" != "$__muxtap_directory"
            set -g __muxtap_directory $PWD
            builtin printf '\e]7;file://%s%s\a' $hostname (builtin string escape --style=url -- "$PWD") >/dev/tty
        end
        if builtin test $__muxtap_state != 4
            __muxtap_mark A
            set -g __muxtap_state 0
        end
        __muxtap_wrap
    end

    # Adds `B` to the prompt, again if the prompt was defined anew. The prompt sees the status first.
    function __muxtap_wrap
        if functions -q fish_prompt; and not builtin string match -q '*__muxtap_fish_prompt*' -- (functions fish_prompt)
            functions -e __muxtap_fish_prompt
            functions -c fish_prompt __muxtap_fish_prompt
            function fish_prompt
                builtin printf '%s\e]133;B%s\a' \
                    (__muxtap_fish_prompt | builtin string collect; or builtin echo) $__muxtap_option
            end
        end
    end
end
