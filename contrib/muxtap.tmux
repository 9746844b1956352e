#!/bin/sh
# Shows agents in the status line of tmux 3.2a and later: each `#{muxtap_agents}` in `status-left` and `status-right`
# becomes what `muxtap status-line` prints. Nothing else of your configuration changes, and no key is bound.
#
#     set -g status-right '#{muxtap_agents} %H:%M'
#     set -g @plugin 'muxtap/muxtap'              # with TPM
#     run-shell ~/src/muxtap/contrib/muxtap.tmux  # or without
#
# Options, before that: @muxtap_program (default: muxtap), @muxtap_format (`muxtap status-line --help`).
set -u

option() { tmux show-option -gqv "$1"; }

program=$(option @muxtap_program)
program=${program:-muxtap}
command -v "$program" >/dev/null 2>&1 || exit 0

# The shell of `#()` reads the format, so that no character of it is special to tmux.
line="#($program status-line)"
[ -z "$(option @muxtap_format)" ] || line="#($program status-line --format \"\$(tmux show-option -gqv @muxtap_format)\")"

for name in status-left status-right; do
    rest=$(option "$name")
    case $rest in *'#{muxtap_agents}'*) ;; *) continue ;; esac
    new=
    while :; do
        case $rest in
        *'#{muxtap_agents}'*) new=$new${rest%%'#{muxtap_agents}'*}$line rest=${rest#*'#{muxtap_agents}'} ;;
        *) break ;;
        esac
    done
    tmux set-option -g "$name" "$new$rest"
done
