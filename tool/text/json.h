// JSON as commands print it: keys in the order in which they were set. Only json.cpp compiles the library that writes
// and reads the text, since its header takes seconds.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::app {

class Json {
 public:
  enum class Kind { null, boolean, integer, natural, real, text, array, object };

  Json() = default;
  Json(std::nullptr_t) {}
  Json(std::same_as<bool> auto value) : kind_(Kind::boolean), natural_(value ? 1 : 0) {}
  Json(std::signed_integral auto value) : kind_(Kind::integer), natural_(static_cast<std::uint64_t>(value)) {}
  Json(std::unsigned_integral auto value) requires(!std::same_as<decltype(value), bool>)
      : kind_(Kind::natural), natural_(value) {}
  Json(std::floating_point auto value) : kind_(Kind::real), real_(value) {}
  Json(const char* text) : kind_(Kind::text), text_(text) {}
  Json(std::string text) : kind_(Kind::text), text_(std::move(text)) {}
  Json(std::string_view text) : kind_(Kind::text), text_(text) {}
  template <class T>
  Json(const std::vector<T>& values) : kind_(Kind::array), items_(values.begin(), values.end()) {}
  // An object where every item is a pair that begins with a text, else an array.
  Json(std::initializer_list<Json> items);

  static Json array(std::initializer_list<Json> items = {});
  static Json object();
  static Json parse(const std::string& text);  // throws std::exception where it is not JSON

  // Null becomes an object. A key that is not there is added.
  Json& operator[](const std::string& key);
  // Throw std::out_of_range where it is not there.
  const Json& operator[](const std::string& key) const;
  const Json& operator[](int index) const { return items_.at(static_cast<std::size_t>(index)); }
  const std::string& text() const;      // throws std::logic_error where it is none
  std::vector<double> numbers() const;  // of an array

  std::size_t size() const { return items_.size(); }  // of an array or an object
  void push_back(Json item);                          // null becomes an array
  void update(const Json& object);                    // sets every key that the other has
  // Bytes that are no UTF-8, as names of files may have, become U+FFFD: a record is not lost for a name.
  std::string dump(int indent = -1) const;

  // By value: 1 and 1.0 are equal.
  friend bool operator==(const Json& a, const Json& b);

 private:
  friend struct JsonText;
  Kind kind_ = Kind::null;
  std::uint64_t natural_ = 0;  // of an integer, its two's complement
  double real_ = 0;
  std::string text_;
  std::vector<std::string> keys_;  // of an object, beside items_
  std::vector<Json> items_;
};

}  // namespace ferry::app
