#include "tool/command_line/completion.h"

#include <fmt/format.h>

namespace ferry::app {
namespace {

// All commands, the root first.
void add_commands(const CommandEntry& command, std::vector<const CommandEntry*>& all) {
  all.push_back(&command);
  for (const CommandEntry* below : shown_commands(command)) add_commands(*below, all);
}

std::vector<const CommandEntry*> all_commands(const CommandEntry& root) {
  std::vector<const CommandEntry*> all;
  add_commands(root, all);
  return all;
}

// ---- bash: a word list for every command, and for every option with known values

std::string words_of(const CommandEntry& command) {
  std::string words;
  for (const CommandEntry* below : shown_commands(command)) words += below->name + " ";
  for (const OptionEntry& option : command.options)
    for (const std::string& name : option.names)
      if (name.starts_with("--")) words += name + " ";
  return words;
}

std::string bash_paths(const CommandEntry& root) {
  std::string cases;
  for (const CommandEntry* command : all_commands(root))
    for (const CommandEntry* below : shown_commands(*command))
      cases += fmt::format("      '{} {}') path='{}' ;;\n", command->path, below->name, below->path);
  return cases;
}

std::string bash_words(const CommandEntry& root) {
  std::string cases;
  for (const CommandEntry* command : all_commands(root))
    cases += fmt::format("    '{}') words='{}' ;;\n", command->path, words_of(*command));
  return cases;
}

std::string bash_values(const CommandEntry& root) {
  std::string cases;
  for (const CommandEntry* command : all_commands(root))
    for (const OptionEntry& option : command->options)
      for (const std::string& name : option.names) {
        if (!option.takes_value) continue;
        cases += fmt::format("    '{} {}') value=1 {} ;;\n", command->path, name,
                             option.takes_path ? "files=1" : fmt::format("values='{}'", fmt::join(option.values, " ")));
      }
  return cases;
}

// ---- zsh: _arguments for every command

std::string zsh_quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted;
}

std::string zsh_option(const OptionEntry& option) {
  std::string lines;
  for (const std::string& name : option.names) {
    std::string value;
    if (option.takes_path)
      value = ":path:_files";
    else if (option.values.empty())
      value = option.takes_value ? ":value: " : "";
    else if (option.takes_many)
      value = fmt::format(":value:_values -s , value {}", fmt::join(option.values, " "));
    else
      value = fmt::format(":value:({})", fmt::join(option.values, " "));
    const bool may_have_equals_sign = !value.empty() && name.starts_with("--");
    lines += fmt::format(" \\\n    '{}{}{}[{}]{}'", option.takes_many ? "*" : "", name, may_have_equals_sign ? "=" : "",
                         zsh_quoted(option.help), value);
  }
  return lines;
}

std::string function_name(const CommandEntry& command) {
  std::string name = "_" + command.path;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
}

std::string zsh_function(const CommandEntry& command) {
  std::string options, names, calls;
  for (const OptionEntry& option : command.options) options += zsh_option(option);
  for (const CommandEntry* below : shown_commands(command)) {
    names += fmt::format(" \\\n      '{}:{}'", below->name, zsh_quoted(below->help));
    calls += fmt::format("        {}) {} ;;\n", below->name, function_name(*below));
  }
  if (command.commands.empty()) return fmt::format("{}() {{\n  _arguments{}\n}}\n\n", function_name(command), options);
  return fmt::format(R"({0}() {{
  local state line commands
  _arguments -C{1} \
    '1:command:->command' \
    '*::word:->words'
  case $state in
    command)
      commands=({2})
      _describe command commands ;;
    words)
      case $line[1] in
{3}      esac ;;
  esac
}}

)",
                     function_name(command), options, names, calls);
}

}  // namespace

std::string bash_completion(const CommandEntry& root) {
  return fmt::format(R"(# bash completion of ferry: source <(ferry completion bash)
_ferry() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path=ferry words='' values='' value='' files='' option='' each
  # Bash takes --format=mx for three words, unless its COMP_WORDBREAKS has no =.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  elif [[ $word == --*=* ]]; then
    before=${{word%%=*}} option=${{word%%=*}}= word=${{word#*=}}
  fi
  for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $each" in
{0}    esac
  done
  case "$path $before" in
{1}  esac
  COMPREPLY=()
  if [[ -n $files ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$option" -f -- "$word")
    compopt -o filenames 2>/dev/null
  elif [[ -n $values ]]; then
    local listed=$option
    [[ $word != *,* ]] || listed+=${{word%,*}},
    mapfile -t COMPREPLY < <(compgen -P "$listed" -W "$values" -- "${{word##*,}}")
  elif [[ -z $value ]]; then  # a number has no words to offer
    case "$path" in
{2}    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  fi
}}
complete -F _ferry ferry
)",
                     bash_paths(root), bash_values(root), bash_words(root));
}

std::string zsh_completion(const CommandEntry& root) {
  std::string functions;
  for (const CommandEntry* command : all_commands(root)) functions += zsh_function(*command);
  return fmt::format(R"(#compdef ferry
# zsh completion of ferry: source <(ferry completion zsh), or a file _ferry in a folder of fpath
{}if [[ $funcstack[1] == _ferry ]]; then
  _ferry "$@"
else
  (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit -i; }}  # a shell that completes nothing yet
  compdef _ferry ferry
fi
)",
                     "\n" + functions);
}

}  // namespace ferry::app
