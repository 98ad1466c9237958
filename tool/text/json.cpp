#include "tool/text/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ferry::app {

// To and from the library's values.
struct JsonText {
  using Value = nlohmann::ordered_json;

  static Value value_of(const Json& json) {
    switch (json.kind_) {
      case Json::Kind::null:
        return nullptr;
      case Json::Kind::boolean:
        return json.natural_ != 0;
      case Json::Kind::integer:
        return static_cast<std::int64_t>(json.natural_);
      case Json::Kind::natural:
        return json.natural_;
      case Json::Kind::real:
        return json.real_;
      case Json::Kind::text:
        return json.text_;
      case Json::Kind::array:
        return array_of(json);
      case Json::Kind::object:
        return object_of(json);
    }
    throw std::logic_error("a JSON value has a kind");
  }

  static Json json_of(const Value& value) {
    switch (value.type()) {
      case Value::value_t::boolean:
        return value.get<bool>();
      case Value::value_t::number_integer:
        return value.get<std::int64_t>();
      case Value::value_t::number_unsigned:
        return value.get<std::uint64_t>();
      case Value::value_t::number_float:
        return value.get<double>();
      case Value::value_t::string:
        return value.get<std::string>();
      case Value::value_t::array: {
        Json array = Json::array();
        for (const Value& item : value) array.push_back(json_of(item));
        return array;
      }
      case Value::value_t::object: {
        Json object = Json::object();
        for (const auto& [key, item] : value.items()) object[key] = json_of(item);
        return object;
      }
      default:
        return nullptr;
    }
  }

 private:
  static Value array_of(const Json& json) {
    Value array = Value::array();
    for (const Json& item : json.items_) array.push_back(value_of(item));
    return array;
  }
  static Value object_of(const Json& json) {
    Value object = Value::object();
    for (std::size_t i = 0; i < json.items_.size(); ++i) object[json.keys_[i]] = value_of(json.items_[i]);
    return object;
  }
};

Json::Json(std::initializer_list<Json> items) {
  const bool has_keys = std::all_of(items.begin(), items.end(), [](const Json& item) {
    return item.kind_ == Kind::array && item.items_.size() == 2 && item.items_[0].kind_ == Kind::text;
  });
  if (!has_keys) {
    *this = array(items);
    return;
  }
  kind_ = Kind::object;
  for (const Json& item : items) (*this)[item.items_[0].text_] = item.items_[1];
}

Json Json::array(std::initializer_list<Json> items) {
  Json json;
  json.kind_ = Kind::array;
  json.items_.assign(items.begin(), items.end());
  return json;
}

Json Json::object() {
  Json json;
  json.kind_ = Kind::object;
  return json;
}

Json Json::parse(const std::string& text) { return JsonText::json_of(JsonText::Value::parse(text)); }

Json& Json::operator[](const std::string& key) {
  if (kind_ == Kind::null) kind_ = Kind::object;
  if (kind_ != Kind::object) throw std::logic_error("only an object of JSON has keys");
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  if (found != keys_.end()) return items_[static_cast<std::size_t>(found - keys_.begin())];
  keys_.push_back(key);
  return items_.emplace_back();
}

const Json& Json::operator[](const std::string& key) const {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return items_.at(static_cast<std::size_t>(found - keys_.begin()));
}

const std::string& Json::text() const {
  if (kind_ != Kind::text) throw std::logic_error("the JSON value is no text");
  return text_;
}

std::vector<double> Json::numbers() const {
  std::vector<double> numbers;
  for (const Json& item : items_) numbers.push_back(JsonText::value_of(item).get<double>());
  return numbers;
}

void Json::push_back(Json item) {
  if (kind_ == Kind::null) kind_ = Kind::array;
  if (kind_ != Kind::array) throw std::logic_error("only an array of JSON grows by an item");
  items_.push_back(std::move(item));
}

void Json::update(const Json& object) {
  for (std::size_t i = 0; i < object.items_.size(); ++i) (*this)[object.keys_[i]] = object.items_[i];
}

std::string Json::dump(int indent) const {
  return JsonText::value_of(*this).dump(indent, ' ', false, JsonText::Value::error_handler_t::replace);
}

bool operator==(const Json& a, const Json& b) { return JsonText::value_of(a) == JsonText::value_of(b); }

}  // namespace ferry::app
