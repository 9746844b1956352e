# Completions of muxtap for bash: the program itself is asked at each TAB.
_muxtap() {
    local line kind=
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $kind ]]; then kind=$line; else COMPREPLY+=("$line"); fi
    done < <(command muxtap __complete bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case $kind in
        files | dirs | command*)
            local current=$2
            # bash before version 4 has no compopt.
            compopt -o filenames 2>/dev/null
            COMPREPLY=()
            # Not by word splitting: that takes a file called `*` for a pattern.
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
                case $kind in
                    files) compgen -f -- "$current" ;;
                    dirs) compgen -d -- "$current" ;;
                    *) compgen -c -- "$current"; compgen -f -- "$current" ;;
                esac
            )
            ;;
        words)
            # A session's name is often the beginning of a window's.
            if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=,] ]]; then compopt -o nospace 2>/dev/null; fi
            ;;
    esac
}
complete -F _muxtap muxtap freshell
