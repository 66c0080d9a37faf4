package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type completionOptions struct{}

func completionCommand() *command {
	return &command{
		name:    "completion",
		usage:   []string{"completion bash|zsh|fish"},
		summary: "print a script that completes commands, flags and ids",
		about: []string{
			"The script asks space-job list for ids when one is completed.",
		},
		examples: []example{
			{"source <(space-job completion bash)", "in ~/.bashrc"},
			{"source <(space-job completion zsh)", "in ~/.zshrc, after compinit"},
			{"space-job completion fish >~/.config/fish/completions/space-job.fish", ""},
		},
		exits:    []exit{{"0", "fine"}, {"2", "no such shell"}},
		operand:  operandShell,
		most:     1,
		textOnly: true,
		new:      func() options { return new(completionOptions) },
	}
}

func (o *completionOptions) AddFlags(*pflag.FlagSet) {}

func (o *completionOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("shell: none is given: bash, zsh or fish", "completion")
	}
	switch args[0] {
	case "bash":
		s.print(bashCompletion())
	case "zsh":
		s.print(zshCompletion())
	case "fish":
		s.print(fishCompletion())
	default:
		return 0, usage("shell: "+quote(args[0])+" is none of bash, zsh, fish", "completion")
	}
	return exitOK, nil
}

// listed is the command that lists ids for an operand.
func (o operand) listed() string {
	switch o {
	case operandJob:
		return "space-job list -n 100"
	case operandRunning:
		return "space-job list -n 100 --state running"
	case operandSink:
		return "space-job sink list"
	case operandMember:
		return "space-job member list"
	case operandRequest:
		return "space-job approvals list"
	}
	return ""
}

// flagNames are all spellings of a command's flags.
func (c *command) flagNames() (all, withValue []string) {
	c.eachFlag(func(f *pflag.Flag) {
		names := []string{"--" + f.Name}
		if f.Shorthand != "" {
			names = append(names, "-"+f.Shorthand)
		}
		all = append(all, names...)
		if placeholder(f) != "" {
			withValue = append(withValue, names...)
		}
	})
	if c.asMember {
		all, withValue = append(all, "--member"), append(withValue, "--member")
	}
	if c.reach != hereOnly {
		all, withValue = append(all, "--space"), append(withValue, "--space")
	}
	if !c.textOnly {
		all = append(all, "--json")
	}
	return append(all, "--help"), withValue
}

// values are what may follow a flag, where they can be named.
func values(f *pflag.Flag) []string {
	switch placeholder(f) {
	case "STATE":
		return api.States()
	case "KIND":
		return []string{"agent", "person"}
	case "ENCODING":
		return []string{"base64", "utf-8"}
	case "FORMAT":
		return []string{"json", "slack"}
	}
	return nil
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString(`# bash completion of space-job: source it.
_space_job() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev= command= at= i word after=
    local flags= valued= ids= what=
    ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD-1]}
    # --flag=value is three words, or two while there is no value yet.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == --member || ${COMP_WORDS[i]} == --space ]]; then
            [[ ${COMP_WORDS[i+1]} == = ]] && ((i++))
            ((i++))
            # The name of a Space may have colons, which are words of their own.
            while [[ ${COMP_WORDS[i+1]} == : ]]; do
                ((i += 2))
            done
        elif [[ ${COMP_WORDS[i]} != -* ]]; then
            command=${COMP_WORDS[i]} at=$i
            break
        fi
    done
`)
	for _, c := range commands() {
		if len(c.sub) == 0 {
			continue
		}
		b.WriteString(`    if [[ $command == ` + c.name + ` ]]; then
        for ((i = at + 1; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            ` + strings.Join(c.subNames(), " | ") + `)
                command+=" ${COMP_WORDS[i]}" at=$i
                break
                ;;
            esac
        done
    fi
`)
	}
	b.WriteString(`    case $command in
    '')
        COMPREPLY=($(compgen -W '` + strings.Join(commandNames(), " ") + ` --json --member --space --help --version' -- "$cur"))
        return
        ;;
`)
	for _, c := range everyCommand() {
		all, valued := c.flagNames()
		b.WriteString("    " + single(c.name) + ")\n")
		b.WriteString("        flags='" + strings.Join(all, " ") + "' valued=' " + strings.Join(valued, " ") + " '\n")
		if l := c.operand.listed(); l != "" {
			b.WriteString("        ids='" + l + "'\n")
		}
		if len(c.sub) > 0 {
			b.WriteString("        what='" + strings.Join(c.subNames(), " ") + "'\n")
		}
		switch c.operand {
		case operandCommand:
			b.WriteString("        what=command\n")
		case operandShell:
			b.WriteString("        what='bash zsh fish'\n")
		case operandHelp:
			b.WriteString("        what='" + strings.Join(commandNames(), " ") + "'\n")
		}
		b.WriteString("        ;;\n")
	}
	b.WriteString(`    *)
        return
        ;;
    esac
    if [[ $valued == *" $prev "* && $prev == -* ]]; then
        case $prev in
        --cwd | -C)
            COMPREPLY=($(compgen -d -- "$cur"))
            ;;
        --env | -e)
            COMPREPLY=($(compgen -e -- "$cur"))
            ;;
`)
	seen := map[string]bool{}
	for _, c := range everyCommand() {
		c.eachFlag(func(f *pflag.Flag) {
			if known := values(f); known != nil && !seen[f.Name] {
				seen[f.Name] = true
				b.WriteString("        --" + f.Name + ")\n            COMPREPLY=($(compgen -W '" + strings.Join(known, " ") + "' -- \"$cur\"))\n            ;;\n")
			}
		})
	}
	b.WriteString(`        esac
        return
    fi
    if [[ $what == command ]]; then
        # Flags end at the first operand; what follows is another command's.
        for ((i = at + 1; i < COMP_CWORD; i++)); do
            word=${COMP_WORDS[i]}
            if [[ $word == -- || $word != -* ]]; then
                after=$i
                break
            fi
            [[ $valued == *" $word "* ]] && ((i++))
        done
        if [[ -n $after && ${COMP_WORDS[after]} == -- ]] && ((after + 1 == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "$cur"))
            return
        elif [[ -n $after ]]; then
            COMPREPLY=($(compgen -f -- "$cur"))
            return
        fi
    fi
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    elif [[ $what == command ]]; then
        COMPREPLY=($(compgen -c -- "$cur"))
    elif [[ -n $what ]]; then
        COMPREPLY=($(compgen -W "$what" -- "$cur"))
    elif [[ -n $ids ]]; then
        # By their end, as far as it is typed, or by their beginning. The first
        # line has the names of the columns, and one that is indented goes on.
        while read -r word _; do
            if [[ $word == "$cur"* || $word == *"$cur" ]]; then
                COMPREPLY+=("$word")
            fi
        done < <($ids 2>/dev/null | sed '1d;/^ /d')
    fi
}
complete -F _space_job space-job
`)
	return b.String()
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString(`#compdef space-job
# zsh completion of space-job: source it after compinit, or put it into $fpath
# as _space-job.
_space_job_ids() {
    local -a ids
    local id rest what=$1
    shift
    while read -r id rest; do
        ids+=("$id:$rest")
    done < <("$@" 2>/dev/null | sed '1d;/^ /d')
    _describe -V "$what" ids
}
_space_job() {
    local curcontext=$curcontext state
    local -a commands=(
`)
	for _, c := range commands() {
		b.WriteString("        " + single(c.name+":"+strings.ReplaceAll(c.summary, ":", `\:`)) + "\n")
	}
	b.WriteString(`    )
    _arguments -C '--json[print JSON]' '--member=[who you are]:NAME:' '--space=[the Space whose jobs it is about]:NAME:' '(-h --help)'{-h,--help}'[show help]' '--version[show the version]' '1:command:->command' '*::operand:->rest'
    case $state in
    command)
        _describe command commands
        ;;
    rest)
        case $words[1] in
`)
	for _, c := range commands() {
		b.WriteString("        " + c.name + ")\n")
		if len(c.sub) > 0 {
			b.WriteString(`            local -a own=(`)
			for _, sub := range c.sub {
				b.WriteString(" " + single(sub.last()+":"+strings.ReplaceAll(sub.summary, ":", `\:`)))
			}
			b.WriteString(` )
            if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
                _describe command own
                return
            fi
            case $words[2] in
`)
			for _, sub := range c.sub {
				b.WriteString("            " + sub.last() + ")\n                shift words\n                ((CURRENT--))\n")
				sub.zshArguments(&b)
				b.WriteString("                return\n                ;;\n")
			}
			b.WriteString("            esac\n")
		}
		c.zshArguments(&b)
		b.WriteString("            ;;\n")
	}
	b.WriteString(`        esac
        ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _space_job "$@"
else
    compdef _space_job space-job
fi
`)
	return b.String()
}

// zshArguments is the call of _arguments for one command.
func (c *command) zshArguments(b *strings.Builder) {
	b.WriteString("            _arguments -S")
	if !c.strict {
		b.WriteString(" -s")
	}
	c.eachFlag(func(f *pflag.Flag) {
		for _, name := range flagSpellings(f) {
			spec := name + "[" + zshText(f.Usage) + "]"
			if c.name == "list" && f.Name == "state" || c.strict && f.Name == "env" {
				spec = "*" + spec
			}
			if p := placeholder(f); p != "" {
				if strings.HasPrefix(name, "--") {
					spec = strings.Replace(spec, "[", "=[", 1) // or --flag=value is not completed
				}
				spec += ":" + p + ":"
				switch {
				case p == "DIR":
					spec += "_directories"
				case p == "NAME=VALUE":
					spec += "_parameters -g \"*export*\""
				case values(f) != nil:
					spec += "(" + strings.Join(values(f), " ") + ")"
				}
			}
			b.WriteString(" \\\n                " + single(spec))
		}
	})
	b.WriteString(" \\\n                ")
	if !c.textOnly {
		b.WriteString("'--json[print JSON]' ")
	}
	if c.asMember {
		b.WriteString(single("--member=["+zshText(memberMeaning)+"]:NAME:") + " ")
	}
	b.WriteString("'--help[show help]'")
	switch c.operand {
	case operandJob, operandRunning, operandSink, operandMember, operandRequest:
		what := map[operand]string{operandSink: "sink", operandMember: "member", operandRequest: "request"}[c.operand]
		if what == "" {
			what = "job"
		}
		count := "*"
		if c.most == 1 {
			count = "1"
		}
		b.WriteString(" \\\n                " + single(count+":"+what+": _space_job_ids "+what+" "+c.operand.listed()))
	case operandNone:
		if c.most != 0 { // or no flag is completed behind it
			b.WriteString(" \\\n                '*:operand:'")
		}
	case operandCommand:
		b.WriteString(" \\\n                '(-)1:command:_command_names -e' '*::argument:_normal'")
	case operandShell:
		b.WriteString(" \\\n                '1:shell:(bash zsh fish)'")
	case operandHelp:
		b.WriteString(" \\\n                " + single("1:command:("+strings.Join(commandNames(), " ")+")"))
	}
	b.WriteString("\n")
}

func flagSpellings(f *pflag.Flag) []string {
	if f.Shorthand == "" {
		return []string{"--" + f.Name}
	}
	return []string{"-" + f.Shorthand, "--" + f.Name}
}

// zshText is a description within the brackets of _arguments.
func zshText(s string) string {
	for _, c := range []string{`\`, "[", "]", ":"} {
		s = strings.ReplaceAll(s, c, `\`+c)
	}
	return s
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString(`# fish completion of space-job: source it, or put it into
# ~/.config/fish/completions/space-job.fish.
function __space_job_ids
    $argv 2>/dev/null | sed '1d;/^ /d' | string replace -r '^(\S+)\s+' '$1\t'
end
# Whether no command is given yet. What follows --member or --space is none.
function __space_job_no_command
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case --member --space
                set i (math $i + 1)
            case '-*'
            case '*'
                return 1
        end
        set i (math $i + 1)
    end
end
complete -c space-job -f
complete -c space-job -n __space_job_no_command -l json -d 'print JSON'
complete -c space-job -n __space_job_no_command -l member -x -d 'who you are'
complete -c space-job -n __space_job_no_command -l space -x -d 'the Space whose jobs it is about'
complete -c space-job -n __space_job_no_command -s h -l help -d 'show help'
complete -c space-job -n __space_job_no_command -l version -d 'show the version'
`)
	for _, c := range commands() {
		b.WriteString("complete -c space-job -n __space_job_no_command -a " + c.name + " -d " + single(c.summary) + "\n")
	}
	var groups []string
	for _, c := range commands() {
		if len(c.sub) > 0 {
			groups = append(groups, c.name)
		}
	}
	for _, c := range everyCommand() {
		seen := "__fish_seen_subcommand_from " + strings.ReplaceAll(c.name, " ", "; and __fish_seen_subcommand_from ")
		switch {
		case len(c.sub) > 0:
			seen += "; and not __fish_seen_subcommand_from " + strings.Join(c.subNames(), " ")
		case len(groups) > 0 && c.last() == c.name:
			seen += "; and not __fish_seen_subcommand_from " + strings.Join(groups, " ")
		}
		line := "complete -c space-job -n '" + seen + "'"
		for _, sub := range c.sub {
			b.WriteString(line + " -a " + sub.last() + " -d " + single(sub.summary) + "\n")
		}
		c.eachFlag(func(f *pflag.Flag) {
			b.WriteString(line + " -l " + f.Name)
			if f.Shorthand != "" {
				b.WriteString(" -s " + f.Shorthand)
			}
			if p := placeholder(f); p != "" {
				b.WriteString(" -x")
				switch {
				case p == "DIR":
					b.WriteString(" -a '(__fish_complete_directories)'")
				case p == "NAME=VALUE":
					b.WriteString(" -a '(set -nx)'")
				case values(f) != nil:
					b.WriteString(" -a " + single(strings.Join(values(f), " ")))
				}
			}
			b.WriteString(" -d " + single(f.Usage) + "\n")
		})
		if c.asMember {
			b.WriteString(line + " -l member -x -d " + single(memberMeaning) + "\n")
		}
		if !c.textOnly {
			b.WriteString(line + " -l json -d 'print JSON'\n")
		}
		b.WriteString(line + " -s h -l help -d 'show help'\n")
		switch c.operand {
		case operandJob, operandRunning, operandSink, operandMember, operandRequest:
			b.WriteString(line + " -k -a " + single("(__space_job_ids "+c.operand.listed()+")") + "\n")
		case operandCommand:
			b.WriteString(line + " -a '(__fish_complete_subcommand --fcs-skip=2)'\n")
		case operandShell:
			b.WriteString(line + " -a 'bash zsh fish'\n")
		case operandHelp:
			b.WriteString(line + " -a " + single(strings.Join(commandNames(), " ")) + "\n")
		}
	}
	return b.String()
}

// single quotes s for sh, zsh and fish alike: what we say has no backslash
// before a quote.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
