// Expressions about jobs, such as `test.accuracy > 0.9 and not (model = resnet or user = anna)`.
// They are parsed once against the fields that there are, and then hold for a job or not.
//
//   expression := conjunction { "or" conjunction }
//   conjunction := negation { "and" negation }
//   negation := "not" negation | "(" expression ")" | field [ operator value ]
//   operator := "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"
//
// A field alone holds if the job has it. A comparison with a field that a job has not never holds.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/filter/fields.h"

namespace trainyard::filter {

struct Node;

// An expression. It is immutable and cheap to copy.
class Expression {
 public:
  // Parses an expression. The error says at which character what was found, and what was expected.
  static absl::StatusOr<Expression> Parse(absl::string_view text, const TypeOf& type_of);

  // Returns true if the expression is true of the job whose fields have these values.
  bool Holds(const ValueOf& value_of) const;

 private:
  explicit Expression(std::shared_ptr<const Node> root) : root_(std::move(root)) {}

  std::shared_ptr<const Node> root_;
};

// An order of jobs: by a field, the smallest first or the largest.
struct Order {
  std::string field;
  bool is_descending = false;
};

// Parses "test.accuracy" or "test.accuracy desc". Only fields with one value have an order.
absl::StatusOr<Order> ParseOrder(absl::string_view text, const TypeOf& type_of);

// Returns true if a job with the first value comes before one with the second. Jobs without a value
// come last in every order. Numbers come before texts.
bool ComesBefore(const Value& left, const Value& right, bool is_descending);

}  // namespace trainyard::filter
