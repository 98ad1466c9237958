#include "tool/command_line/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

#include "ferry/error.h"
#include "tool/command_line/nearest.h"

namespace ferry::app {
namespace {

[[noreturn]] void refuse(const CommandEntry& command, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{} (see {} --help)", why, command.path));
}

std::vector<std::string> option_names(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const OptionEntry& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> command_names(const CommandEntry& parent) {
  std::vector<std::string> names;
  for (const CommandEntry* command : shown_commands(parent)) names.push_back(command->name);
  return names;
}

// Paths of all commands that have the option.
void add_owners(const CommandEntry& command, const std::string& option, std::vector<std::string>& paths) {
  if (find_option(command, option) != nullptr) paths.push_back(command.path);
  for (const CommandEntry* below : shown_commands(command)) add_owners(*below, option, paths);
}

[[noreturn]] void refuse_option(const CommandEntry& root, const CommandEntry& command, const std::string& name) {
  std::string why = fmt::format("{} is not an option of {}", name, command.path);
  const std::string hint = did_you_mean(name, option_names(command));
  std::vector<std::string> owners;
  add_owners(root, name, owners);
  constexpr std::size_t kMostToName = 12;
  const std::vector<std::string> names = option_names(command);
  if (!hint.empty())
    why += hint;
  else if (!owners.empty())
    why += fmt::format("; {} {} it", fmt::join(owners, ", "), owners.size() == 1 ? "has" : "have");
  else if (names.size() <= kMostToName)
    why += fmt::format("; it has {}", fmt::join(names, ", "));
  refuse(command, why);
}

[[noreturn]] void refuse_command(const CommandEntry& parent, const std::string& word) {
  const std::vector<std::string> names = command_names(parent);
  const std::string hint = did_you_mean(word, names);
  refuse(parent, fmt::format("{} is not a command{}", word,
                             hint.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : hint));
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// The words of a command line, one after the other.
class Words {
 public:
  Words(const CommandEntry& root, std::span<const std::string> words) : root_(root), command_(&root), words_(words) {}

  void require_known() {
    while (next_ < words_.size()) is_option(words_[next_]) ? take_option() : take_command();
    if (!command_->commands.empty() && !needs_no_command_)
      refuse(*command_,
             fmt::format("{} needs a command: {}", command_->path, fmt::join(command_names(*command_), ", ")));
  }

 private:
  void take_command() {
    const std::string& word = words_[next_++];
    if (command_->commands.empty())
      refuse(*command_, fmt::format("'{}' belongs to no option of {}", word, command_->path));
    const CommandEntry* found = find_command(*command_, word);
    if (found == nullptr) refuse_command(*command_, word);
    command_ = found;
  }

  void take_option() {
    const std::string& word = words_[next_++];
    const bool is_short = word[1] != '-';
    const std::size_t end = is_short ? 2 : std::min(word.find('='), word.size());
    const OptionEntry* option = find_option(*command_, word.substr(0, end));
    if (option == nullptr) refuse_option(root_, *command_, word.substr(0, is_short ? word.size() : end));
    if (!option->takes_value) {
      if (end < word.size() && !is_short)
        refuse(*command_, fmt::format("{} takes no value: leave out {}", word.substr(0, end), word.substr(end)));
      needs_no_command_ = needs_no_command_ || is_of_all(*option);
      return;
    }
    if (end < word.size())
      take_value(*option, word.substr(is_short ? end : end + 1));
    else if (next_ < words_.size())
      take_value(*option, words_[next_++]);
    else
      refuse(*command_, fmt::format("{} needs a value", word));
    while (option->takes_many && next_ < words_.size() && !is_option(words_[next_]))
      require_values(*option, words_[next_++]);
  }

  // An empty value stands for a variable of the shell that was not set, or for a comma too many.
  void require_values(const OptionEntry& option, const std::string& value) const {
    if (value.empty() && !option.may_be_empty)
      refuse(*command_, fmt::format("{}: its value is empty", option.names.front()));
    if (option.takes_many && ("," + value + ",").find(",,") != std::string::npos)
      refuse(*command_, fmt::format("{} {}: a value between commas is empty", option.names.front(), value));
  }

  void take_value(const OptionEntry& option, const std::string& value) {
    require_values(option, value);
    const auto [before, is_new] = values_.emplace(&option, value);
    if (!is_new && !option.takes_many)
      refuse(*command_, fmt::format("{} is given twice, as {} and as {}; give it once", option.names.front(),
                                    before->second, value));
  }

  // --help and --version do their work without a command.
  static bool is_of_all(const OptionEntry& option) {
    return std::any_of(option.names.begin(), option.names.end(),
                       [](const std::string& name) { return name == "--help" || name == "--version"; });
  }

  const CommandEntry& root_;
  const CommandEntry* command_;
  std::span<const std::string> words_;
  std::size_t next_ = 0;
  bool needs_no_command_ = false;
  std::map<const OptionEntry*, std::string> values_;
};

}  // namespace

std::vector<const CommandEntry*> shown_commands(const CommandEntry& parent) {
  std::vector<const CommandEntry*> shown;
  for (const CommandEntry& command : parent.commands)
    if (!command.is_hidden) shown.push_back(&command);
  return shown;
}

const CommandEntry* find_command(const CommandEntry& parent, const std::string& name) {
  const auto found = std::find_if(parent.commands.begin(), parent.commands.end(),
                                  [&](const CommandEntry& command) { return command.name == name; });
  return found == parent.commands.end() ? nullptr : &*found;
}

const OptionEntry* find_option(const CommandEntry& command, const std::string& name) {
  for (const OptionEntry& option : command.options)
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
  return nullptr;
}

const CommandEntry& command_of(const CommandEntry& root, std::span<const std::string> words) {
  const CommandEntry* command = &root;
  for (const std::string& word : words) {
    const CommandEntry* below = find_command(*command, word);
    if (below == nullptr) break;
    command = below;
  }
  return *command;
}

void require_known_words(const CommandEntry& root, std::span<const std::string> words) {
  Words(root, words).require_known();
}

}  // namespace ferry::app
