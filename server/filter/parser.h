// Makes trees of expressions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/filter/fields.h"
#include "server/filter/literal.h"

namespace trainyard::filter {

enum class Operator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kContains };

// A part of an expression, by what it is.
struct Node {
  enum class Role { kAnd, kOr, kNot, kThere, kCompare };

  Role role = Role::kThere;
  std::vector<Node> parts;  // of kAnd, kOr and kNot
  std::string field;        // of kThere and kCompare
  Kind kind = Kind::kText;
  Operator comparison = Operator::kEqual;
  Literal literal;
};

// Returns the tree, which is at most a little deeper than kDepthMax.
absl::StatusOr<Node> ParseTree(absl::string_view text, const TypeOf& type_of);

}  // namespace trainyard::filter
