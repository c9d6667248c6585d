#compdef bellwether
# Completion of `bellwether` for zsh. The program itself says what may stand at the cursor.
_bellwether() {
    local -a answer candidates displays
    local kind line
    answer=("${(@f)$(bellwether complete -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    kind=$answer[1]
    case $kind in
        words | paths)
            for line in $answer[2,-1]; do
                candidates+=("${line%%$'\t'*}")
                displays+=("${line/$'\t'/  -- }")
            done
            if [[ $kind == paths ]]; then
                compadd -S '' -l -d displays -a candidates
            else
                compadd -l -d displays -a candidates
            fi
            ;;
        files)
            compset -P '*='
            _files
            ;;
        job*)
            # Words are counted from zero there.
            shift ${kind#job } words
            ((CURRENT -= ${kind#job }))
            _normal
            ;;
    esac
}
if [[ $funcstack[1] == _bellwether ]]; then
    _bellwether "$@"
else
    compdef _bellwether bellwether
fi
