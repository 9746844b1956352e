# Shell integration of muxtap for nushell: switches on nushell's own OSC 133 marks and OSC 7. With a nonce, hooks print
# `A`, `C` with the line, and `D` a second time, with the nonce. Before this `D` is the end (ST) of a string that the
# command may have left open.
if $nu.is-interactive and ("TMUX" in $env) and ($env.TERM? != "dumb") and (
    ("/dev/tty" | path type) == "char device" and (try { "" | save --append --raw /dev/tty; true } catch { false })
) {
    $env.config.shell_integration.osc133 = true
    $env.config.shell_integration.osc7 = true
    if ($env.MUXTAP_SHELL_NONCE? | default "") =~ '^[a-zA-Z0-9._-]+$' {
        let option = $";muxtap=($env.MUXTAP_SHELL_NONCE)"
        $env.config.hooks.pre_execution = ($env.config.hooks.pre_execution? | default [] | append {||
            let line = (commandline | url encode --all)
            let line = if $line == "" or ($line | str length) > 4096 { "" } else { $";cmdline_url=($line)" }
            print -n $"(ansi escape)]133;C($line)($option)(char bel)"
        })
        $env.config.hooks.pre_prompt = ($env.config.hooks.pre_prompt? | default [] | append {||
            print -n $"(ansi escape)\\(ansi escape)]133;D;($env.LAST_EXIT_CODE)($option)(char bel)"
            print -n $"(ansi escape)]133;A($option)(char bel)"
        })
    }
    hide-env --ignore-errors MUXTAP_SHELL_NONCE
}
