# Completion of `bellwether` for bash. The program itself says what may stand at the cursor.
_bellwether() {
    COMPREPLY=()
    # Joins what bash splits at `=` and `:`. `starts` has the index in COMP_WORDS of each word.
    local rest=$COMP_LINE words=() starts=() index word
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if ((${#words[@]} == 0)) || [[ $rest == [[:blank:]]* ]]; then
            words+=("$word")
            starts+=("$index")
        else
            words[-1]+=$word
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
    local current=${words[-1]} quote= prefix= kind line
    [[ $current == [\"\']* ]] && quote=${current:0:1}
    # Bash replaces only what follows the last `=` or `:`.
    [[ -z $quote ]] && prefix=${current%"${current##*[=:]}"}
    {
        IFS= read -r kind
        case $kind in
            words | paths)
                while IFS= read -r line; do
                    line=${line%%$'\t'*}
                    line=${line#"${prefix//\\/}"}
                    [[ -z $quote ]] && printf -v line %q "$line"
                    COMPREPLY+=("$line")
                done
                ;;
        esac
    } < <(bellwether complete -- "${words[@]//[\\\"\']/}" 2>/dev/null)
    case $kind in
        paths) compopt -o nospace ;;
        files) compopt -o bashdefault -o default ;;
        job*)
            index=${kind#job }
            if declare -F _command_offset >/dev/null; then
                _command_offset "${starts[index]}"
            elif ((index == ${#words[@]} - 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$current")
            else
                compopt -o bashdefault -o default
            fi
            ;;
    esac
} 2>/dev/null
complete -F _bellwether bellwether
