# Shell integration of muxtap for nushell: hooks print OSC 133 `A`, `C` with the line, and `D`, with the nonce if there is
# one; nushell prints OSC 7. Its own OSC 133 marks are off, since they count an empty line as a command. Before `D` is
# the end (ST) of a string that the command may have left open.
if $nu.is-interactive and ("TMUX" in $env) and ($env.TERM? != "dumb") and (
    ("/dev/tty" | path type) == "char device" and (try { "" | save --append --raw /dev/tty; true } catch { false })
) {
    $env.config.shell_integration.osc133 = false
    $env.config.shell_integration.osc7 = true
    let nonce = $env.MUXTAP_SHELL_NONCE? | default ""
    let option = if $nonce =~ '^[a-zA-Z0-9._-]+$' { $";muxtap=($nonce)" } else { "" }
    $env.config.hooks.pre_execution = ($env.config.hooks.pre_execution? | default [] | append {||
        let line = (commandline | str trim | url encode --all)
        if $line != "" {
            let line = if ($line | str length) > 4096 { "" } else { $";cmdline_url=($line)" }
            print -n $"(ansi escape)]133;C($line)($option)(char bel)"
        }
    })
    $env.config.hooks.pre_prompt = ($env.config.hooks.pre_prompt? | default [] | append {||
        print -n $"(ansi escape)\\(ansi escape)]133;D;($env.LAST_EXIT_CODE)($option)(char bel)"
        print -n $"(ansi escape)]133;A($option)(char bel)"
    })
    hide-env --ignore-errors MUXTAP_SHELL_NONCE
}
