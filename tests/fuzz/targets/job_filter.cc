// Parses expressions about jobs and orders of them. What is understood is evaluated for a job that
// has all fields, and for one that has none.
#include <cmath>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/strings.h"
#include "server/filter/expression.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::job_filter {
namespace {

// The first letter of a field says its kind.
absl::StatusOr<filter::FieldType> TypeOf(const std::string& field) {
  switch (field.front()) {
    case 's':
      return filter::FieldType{filter::Kind::kWord, {"running", "failed"}};
    case 't':
      return filter::FieldType{filter::Kind::kTexts};
    case 'a':
      return filter::FieldType{filter::Kind::kNumber};
    case 'd':
      return filter::FieldType{filter::Kind::kDuration};
    case 'b':
      return filter::FieldType{filter::Kind::kBytes};
    case 'c':
      return filter::FieldType{filter::Kind::kTime};
    case 'p':
      return filter::FieldType{filter::Kind::kAny};
    case 'n':
      return filter::FieldType{filter::Kind::kText};
    default:
      return absl::InvalidArgumentError("a field that there is");
  }
}

filter::Value ValueOf(const std::string& field) {
  if (field.size() % 4 == 1) return {};
  switch (field.front()) {
    case 's':
    case 'n':
      return "running";
    case 't':
      return std::vector<std::string>{"paper", "good"};
    default:
      return field.size() % 4 == 2 ? std::nan("") : 0.9;
  }
}

void Run(absl::string_view text) {
  const auto expression = filter::Expression::Parse(text, TypeOf);
  if (expression.ok()) {
    (void)expression->Holds(ValueOf);
    // Nothing holds of a job without fields, unless something is denied.
    const bool holds = expression->Holds([](const std::string&) { return filter::Value(); });
    const std::string lower(text);
    TY_CHECK(!holds || lower.find_first_of("nN") != std::string::npos);
  } else {
    TY_CHECK(!expression.status().message().empty());
  }
  if (const auto order = filter::ParseOrder(text, TypeOf); order.ok()) {
    TY_CHECK(!order->field.empty());
    const filter::Value value = ValueOf(order->field);
    TY_CHECK(!filter::ComesBefore(value, value, order->is_descending));
  }
}

const Registration kTarget({.name = "job_filter", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::job_filter
