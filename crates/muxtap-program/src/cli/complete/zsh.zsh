#compdef muxtap freshell
# Completions of muxtap for zsh: the program itself is asked at each TAB.
_muxtap() {
    local -a lines values shown
    local line
    lines=("${(@f)$(command muxtap __complete zsh "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $lines[1] in
        files) _files ;;
        dirs) _files -/ ;;
        command*)
            local first=${lines[1]#command }
            shift $first words
            (( CURRENT -= first ))
            _normal
            ;;
        words)
            for line in "${(@)lines[2,-1]}"; do
                values+=("${line%%$'\t'*}")
                shown+=("${line#*$'\t'}")
            done
            (( $#values )) && compadd -l -V muxtap -d shown -a -- values
            ;;
    esac
}
if [[ $funcstack[1] == _muxtap ]]; then
    _muxtap "$@"
else
    compdef _muxtap muxtap freshell
fi
