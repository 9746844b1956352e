# Completions of muxtap for fish: the program itself is asked at each TAB.
function __muxtap_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (command muxtap __complete fish $before "$current" 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path "$current"
        case dirs
            __fish_complete_directories "$current"
        case 'command *'
            set -l first (string replace 'command ' '' -- $lines[1])
            set -l inner (string escape -- $before[(math $first + 1)..])
            complete -C (string join ' ' -- $inner "$current")
        case words
            if set -q lines[2]
                printf '%s\n' $lines[2..]
            end
    end
end
for program in muxtap freshell
    complete -c $program -e
    complete -k -c $program -f -a '(__muxtap_complete)'
end
