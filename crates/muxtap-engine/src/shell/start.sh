# Starts "$@", a shell, so that it also reads the integration's file in the directory `$d`. Read by sh.
set -- "$d" "$@"
unset d
for muxtap_word do
    case $muxtap_word in
    -l | -il | -li | --login) muxtap_login=1 ;;
    esac
done
muxtap_dir=$1 muxtap_shell=$2
shift 2
unset MUXTAP_SHELL_ENV MUXTAP_SHELL_LOGIN MUXTAP_SHELL_ZDOTDIR
case ${muxtap_shell##*/} in
bash)
    # In POSIX mode, a login shell reads only `$ENV`, too. `--rcfile FILE` would look like `bash SCRIPT`.
    if [ "${ENV+set}" ]; then export MUXTAP_SHELL_ENV="$ENV"; fi
    ENV=$muxtap_dir/bash exec "$muxtap_shell" --posix "$@"
    ;;
zsh)
    if [ "${ZDOTDIR+set}" ]; then export MUXTAP_SHELL_ZDOTDIR="$ZDOTDIR"; fi
    ZDOTDIR=$muxtap_dir/zsh exec "$muxtap_shell" "$@"
    ;;
fish)
    exec "$muxtap_shell" --init-command="source $muxtap_dir/fish" "$@"
    ;;
*)
    # A profile may set ENV, so a login shell's profiles are read by the file.
    if [ "${ENV+set}" ]; then export MUXTAP_SHELL_ENV="$ENV"; fi
    if [ "${muxtap_login-}" ]; then export MUXTAP_SHELL_LOGIN=1; fi
    ENV=$muxtap_dir/sh exec "$muxtap_shell" -i
    ;;
esac
