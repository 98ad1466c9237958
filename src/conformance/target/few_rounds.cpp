#include "conformance/target/few_rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace ferry::conformance {
namespace {

using Words = std::set<std::string>;

bool names_its_value(const std::string& word) { return word.find('=') != std::string::npos; }

// What stands before the first word with a value is one word.
Words words_of(const std::string& description) {
  Words words;
  std::string head;
  bool in_head = true;
  std::istringstream text(description);
  for (std::string word; text >> word;) {
    in_head = in_head && !names_its_value(word);
    if (in_head)
      head += word + " ";
    else if (!word.starts_with("seed="))
      words.insert(word);
  }
  words.insert("head=" + head);
  return words;
}

// The settings of each round, by their numbers, without those that all have.
std::vector<std::vector<std::size_t>> settings_of(const std::vector<std::string>& descriptions) {
  std::vector<Words> rounds;
  std::map<std::string, int> times;
  std::map<std::string, std::size_t> have;
  for (const std::string& description : descriptions) {
    Words& words = rounds.emplace_back(words_of(description));
    const std::string time = std::to_string(times[description]++);
    words.insert("time=" + (names_its_value(description) ? time : description + time));
    for (const std::string& word : words) ++have[word];
  }
  std::map<std::string, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> settings(rounds.size());
  const auto add = [&](std::size_t round, const std::string& word) {
    settings[round].push_back(numbers.try_emplace(word, numbers.size()).first->second);
  };
  for (const auto& [word, count] : have) {
    if (count == rounds.size()) continue;
    for (std::size_t i = 0; i < rounds.size(); ++i)
      if (rounds[i].contains(word))
        add(i, word);
      else if (!names_its_value(word))
        add(i, "not " + word);
  }
  return settings;
}

// Settings that rounds have had so far, and pairs of them.
class Covered {
 public:
  // How many this round would add: settings first, then pairs.
  std::pair<std::size_t, std::size_t> gain(const std::vector<std::size_t>& round) const {
    std::pair<std::size_t, std::size_t> gain;
    for (std::size_t i = 0; i < round.size(); ++i) {
      gain.first += settings_.count(round[i]) == 0 ? 1 : 0;
      for (std::size_t j = i + 1; j < round.size(); ++j) gain.second += pairs_.count({round[i], round[j]}) == 0 ? 1 : 0;
    }
    return gain;
  }
  void add(const std::vector<std::size_t>& round) {
    for (std::size_t i = 0; i < round.size(); ++i) {
      settings_.insert(round[i]);
      for (std::size_t j = i + 1; j < round.size(); ++j) pairs_.insert({round[i], round[j]});
    }
  }

 private:
  std::set<std::size_t> settings_;
  std::set<std::pair<std::size_t, std::size_t>> pairs_;
};

// Thrown where a case asks for more than to run a round.
class NeedsRounds : public std::runtime_error {
 public:
  NeedsRounds() : std::runtime_error("the case needs what its rounds bring") {}
};

}  // namespace

std::vector<bool> covering_rounds(const std::vector<std::string>& descriptions) {
  const std::vector<std::vector<std::size_t>> rounds = settings_of(descriptions);
  std::vector<bool> chosen(rounds.size());
  Covered covered;
  while (true) {
    std::size_t best = rounds.size();
    std::pair<std::size_t, std::size_t> most;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (chosen[i]) continue;
      const std::pair<std::size_t, std::size_t> gain = covered.gain(rounds[i]);
      if (best != rounds.size() && gain <= most) continue;
      best = i;
      most = gain;
    }
    const bool is_first = std::ranges::find(chosen, true) == chosen.end();
    if (best == rounds.size() || (!is_first && most.first == 0)) return chosen;
    chosen[best] = true;
    covered.add(rounds[best]);
  }
}

std::vector<std::string> rounds_of(const Case& each, const Target& target) {
  std::vector<std::string> rounds;
  Target none = target;
  none.runs_round = [&](const std::string& what) {
    rounds.push_back(what);
    return false;
  };
  none.run_ranks = [](int, const std::function<void(World&)>&) { throw NeedsRounds(); };
  if (target.make_worlds) none.make_worlds = [](int) -> std::vector<std::unique_ptr<World>> { throw NeedsRounds(); };
  try {
    each.run(none);
  } catch (const std::exception&) {  // the rest is not known; running the case says what is wrong
  }
  return rounds;
}

void run_few_rounds(const Case& each, const Target& target) {
  const std::vector<std::string> rounds = rounds_of(each, target);
  const std::vector<bool> chosen = covering_rounds(rounds);
  std::size_t next = 0;
  Target few = target;
  few.runs_round = [&](const std::string& what) {
    const std::size_t round = next++;
    return round >= rounds.size() || rounds[round] != what || chosen[round];
  };
  each.run(few);
}

}  // namespace ferry::conformance
