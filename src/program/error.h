// An error in a call: thrown where it is found, shown by the front end.

#pragma once

#include <exception>
#include <string>
#include <utility>

namespace gemel {

class Error : public std::exception {
 public:
  // `type` is the name of the exception class that users see, e.g. "ShapeError".
  Error(std::string type, std::string message)
      : type_(std::move(type)), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& type() const noexcept { return type_; }

 private:
  std::string type_;
  std::string message_;
};

}  // namespace gemel
