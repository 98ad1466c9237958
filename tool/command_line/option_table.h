// The commands and their options as plain values: what is known of them without the parser. command_line.cpp fills it
// in from the parser, so that nothing is listed twice.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ferry::app {

struct OptionEntry {
  std::vector<std::string> names;  // "--tokens", "-n"
  std::string help;
  std::vector<std::string> values;  // that completion offers; empty: none are known
  bool takes_value = false;
  bool takes_many = false;    // values, and may be given again
  bool takes_path = false;    // the value is a file or a folder
  bool may_be_empty = false;  // the command itself refuses an empty value, with what to give in its place
};

struct CommandEntry {
  std::string name;  // "encode"
  std::string path;  // "ferry codec encode"
  std::string help;
  std::vector<OptionEntry> options;
  std::vector<CommandEntry> commands;
  bool is_hidden = false;  // works, but is named nowhere
};

std::vector<const CommandEntry*> shown_commands(const CommandEntry& parent);

const CommandEntry* find_command(const CommandEntry& parent, const std::string& name);
// By any of its names.
const OptionEntry* find_option(const CommandEntry& command, const std::string& name);

// The command that the words lead to: the last one whose name stands in its place.
const CommandEntry& command_of(const CommandEntry& root, std::span<const std::string> words);

// Throws Error(invalid_argument) for words that no command has, before the parser looks for what is missing: an unknown
// command or option, with the one that is nearest; an option without its value, or given twice; a word that belongs to
// no option; a command that needs another one behind it.
void require_known_words(const CommandEntry& root, std::span<const std::string> words);

}  // namespace ferry::app
