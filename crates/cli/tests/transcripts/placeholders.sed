# What differs between runs of a transcript. SERVER and WHO are replaced before.
s/\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9:]+)?/<TIME>/g
s/\b0x[0-9a-f]+\b/<HEX>/g
s/\b[0-9a-f]{16}\b/<ID>/g
s/-[0-9]{10}\b/-<SEQUENCE>/g
s/\bpid [0-9]+/pid <PID>/g
s/"pid":[0-9]+/"pid":<PID>/g
s/\btoken [0-9]+/token <TOKEN>/g
s/"token":[0-9]+/"token":<TOKEN>/g
s/_ms":[0-9]+/_ms":<MS>/g
s/\b[0-9a-f]{13,15}\b/<SESSION>/g
s/\bafter [0-9.]+ s\b/after <TIME>/g
s/\b[0-9]+m?s ago/<AGE> ago/g
# Ages, but not the limits in `after 1s` and `within 1s`.
s/, [0-9]+m?s\b/, <AGE>/g
s/([0-9] +)[0-9]+s$/\1<AGE>/
s/([0-9] +)[0-9]+s( |$)/\1<AGE>\2/
