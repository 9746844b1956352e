# Shell integration of muxtap for fish 3.1 and later: prints OSC 133 marks, and OSC 7 with the directory.
# fish 4 prints `A`, `C` and `D` itself. Without a nonce, only `B` and the directory are added there.
# fish reports a redirection that fails even with `2>/dev/null`, so sh tries the terminal.
if status is-interactive; and test "$TERM" != dumb; and not set -q __muxtap_on
    and builtin string match -qr '^(tmux|screen)' -- (set -q TMUX; and builtin echo tmux; or builtin echo "$TERM")
    and command sh -c 'test -c /dev/tty && : >/dev/tty' 2>/dev/null

    # States: 0 at the prompt, 1 a command has started, 2 `D` is printed, 3 before the first prompt.
    set -gu __muxtap_on 1
    set -gu __muxtap_state 3
    set -gu __muxtap_directory ''
    set -gu __muxtap_url ''
    set -gu __muxtap_wraps 0
    set -gu __muxtap_wrapped ''
    set -gu __muxtap_option ''
    if set -q MUXTAP_SHELL_NONCE
        if builtin string match -qr '^[a-zA-Z0-9._-]+$' -- "$MUXTAP_SHELL_NONCE"
            set -gu __muxtap_option ";muxtap=$MUXTAP_SHELL_NONCE"
        end
        set -e MUXTAP_SHELL_NONCE
    end
    set -gu __muxtap_input \e"]133;B;shell=fish$__muxtap_option"\a

    function __muxtap_mark
        builtin printf '\e]133;%s%s\a' $argv[1] $__muxtap_option >/dev/tty 2>/dev/null
    end

    # Prints `D`, after the end (ST) of a string that the command may have left open.
    function __muxtap_mark_end
        builtin printf '\e\\\\\e]133;D%s%s\a' "$argv[1]" $__muxtap_option >/dev/tty 2>/dev/null
    end

    # Prints the directory. An inner shell or ssh may have printed another one.
    function __muxtap_report_directory
        if builtin test "$PWD" != "$__muxtap_directory"
            set -g __muxtap_directory $PWD
            set -g __muxtap_url file://$hostname(builtin string escape --style=url -- "$PWD")
        end
        builtin printf '\e]7;%s\a' "$__muxtap_url" >/dev/tty 2>/dev/null
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
        or functions -q __ksi_mark_prompt_start
        or functions -q __ghostty_mark_prompt_start
        or functions -q iterm2_common
        or functions -q __vsc_fish_prompt_start
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
        __muxtap_mark_end ";$status"
        set -g __muxtap_state 2
    end

    # Ctrl-C draws a prompt without an event of its own.
    function __muxtap_cancel --on-event fish_cancel
        __muxtap_mark_end
        __muxtap_report_directory
        __muxtap_mark A
    end

    function __muxtap_prompt --on-event fish_prompt
        if builtin test $__muxtap_state = 3; and __muxtap_other; and builtin test -z "$__muxtap_option"
            functions -e __muxtap_start __muxtap_end __muxtap_cancel
            set -g __muxtap_state 4
        end
        if builtin test $__muxtap_state = 0
            __muxtap_mark_end
        end
        __muxtap_report_directory
        if builtin test $__muxtap_state != 4
            __muxtap_mark A
            set -g __muxtap_state 0
        end
        __muxtap_wrap
    end

    # Adds `B` to the prompt. Each prompt is copied to a name of its own: it may call an earlier wrap, whose `B` is
    # removed. The prompt sees the status first, and ends as fish reads it: without one line end.
    function __muxtap_wrap
        functions -q fish_prompt
        or return
        # fish says where a copy was made.
        set -l text (functions fish_prompt | builtin string match -rv '^# Defined ' | builtin string collect)
        if builtin string match -q '*__muxtap_fish_prompt_*' -- "$text"
            return
        end
        # A prompt that is defined anew each time is copied once.
        if builtin test "$text" != "$__muxtap_wrapped"
            set -g __muxtap_wrapped "$text"
            set -g __muxtap_wraps (builtin math $__muxtap_wraps + 1)
            functions -c fish_prompt __muxtap_fish_prompt_$__muxtap_wraps
        end
        eval 'function fish_prompt
            set -l lines (__muxtap_fish_prompt_'$__muxtap_wraps' $argv | builtin string replace -a $__muxtap_input "")
            if builtin test (builtin count $lines) -gt 1
                builtin printf "%s\n" $lines[1..-2]
            end
            builtin printf "%s%s" "$lines[-1]" $__muxtap_input
        end'
    end

    # While a command runs, the prompt is the person's own: the command may save or copy it.
    function __muxtap_unwrap --on-event fish_preexec
        functions -q fish_prompt
        or return
        if builtin string match -q '*__muxtap_fish_prompt_*' -- (functions fish_prompt | builtin string collect)
            functions -e fish_prompt
            functions -c __muxtap_fish_prompt_$__muxtap_wraps fish_prompt
        end
    end
end
