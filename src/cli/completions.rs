//! `worktree completions`: what a shell needs to complete, and to enter worktrees.

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use super::trouble::Trouble;
use super::{Exit, output};

/// The variable by which a shell asks for completions.
pub const VARIABLE: &str = "WORKTREE_COMPLETE";

const AFTER_HELP: &str = "\
Words are completed with what there is: commands, options, ids and branches of worktrees, branches of the repository.

With --init two shell functions come along: `worktree`, which enters what `worktree create` made, and `wt NAME`, \
which enters the worktree of that name.

Into the startup file of your shell:
  bash, zsh   eval \"$(worktree completions --init bash)\"
  fish        worktree completions --init fish | source

Exit codes:
  0  printed
  2  the command line is wrong";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// Print the shell functions as well
    #[arg(long)]
    init: bool,
}

/// The shells that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }

    fn functions(self) -> &'static str {
        match self {
            Shell::Bash | Shell::Zsh => FUNCTIONS,
            Shell::Fish => FISH_FUNCTIONS,
        }
    }
}

/// A subshell would not do: it is this shell that has to change its directory.
const FUNCTIONS: &str = r#"
worktree() {
    if [ "${1-}" != create ]; then
        command worktree "$@"
        return
    fi
    local file place code=0
    file=$(mktemp) || return
    command worktree "$@" --cd-file "$file" || code=$?
    place=$(cat "$file")
    rm -f "$file"
    if [ "$code" = 0 ] && [ -n "$place" ]; then cd "$place" || return; fi
    return "$code"
}
wt() {
    local place
    place=$(command worktree get --path "$@") && cd "$place"
}
"#;

const FISH_FUNCTIONS: &str = r#"
function worktree
    if test "$argv[1]" != create
        command worktree $argv
        return
    end
    set -l file (mktemp); or return
    command worktree $argv --cd-file $file
    set -l code $status
    set -l place (cat $file)
    rm -f $file
    if test $code = 0; and test -n "$place"
        cd $place
    end
    return $code
end
function wt
    set -l place (command worktree get --path $argv); and cd $place
end
"#;

pub(super) fn run(arguments: &Arguments) -> Exit {
    match print(arguments) {
        Ok(()) => Exit::Success,
        Err(trouble) => {
            trouble.tell("completions", false);
            trouble.exit()
        }
    }
}

fn print(arguments: &Arguments) -> Result<(), Trouble> {
    let shells = Shells::builtins();
    let name = arguments.shell.name();
    let completer =
        shells.completer(name).ok_or_else(|| Trouble::usage(format!("no completions for the shell `{name}`")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "worktree", "worktree", "worktree", &mut script)?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if arguments.init {
        script.push_str(arguments.shell.functions());
    }
    Ok(output::write(&script)?)
}
