# Completion of `bellwether` for fish. The program itself says what may stand at the cursor.
function __bellwether_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l answer (bellwether complete -- $before (string unescape -- "$current") 2>/dev/null)
    switch "$answer[1]"
        case words paths
            test (count $answer) -gt 1; and printf '%s\n' $answer[2..]
        case files
            set -l option (string match -r '^--[^=]*=' -- "$current")
            set -l file (string replace -r '^--[^=]*=' '' -- "$current")
            string replace -r '^' -- "$option" (complete -C "'' $file")
        case 'job *'
            # Words are counted from zero there.
            set -l first (math (string split ' ' -- $answer[1])[2] + 1)
            set -l job
            test $first -le (count $before); and set job (string escape -- $before[$first..])
            complete -C (string join ' ' -- $job "$current")
    end
end
complete -c bellwether -f -a '(__bellwether_complete)'
