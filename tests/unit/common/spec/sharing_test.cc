// Tests specs of jobs that share devices: elastic jobs, memory, labels; and arrays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "common/spec/array.h"
#include "common/spec/byte_size.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/fields.h"
#include "common/spec/interval.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> ViolatedFields(const v1::JobSpec& spec) {
  v1::JobSpec resolved;
  std::vector<std::string> fields;
  for (const auto& violation : ResolveInto(spec, resolved)) fields.push_back(violation.field);
  return fields;
}

TEST(ByteSizes, AreReadAndWrittenAsPeopleDo) {
  for (const auto& [text, bytes] :
       std::vector<std::pair<const char*, int64_t>>{{"80 GiB", int64_t{80} << 30},
                                                    {"24GB", 24'000'000'000},
                                                    {"1.5 KiB", 1536},
                                                    {" 7 B ", 7},
                                                    {"0 B", 0},
                                                    {"1024 TiB", int64_t{1} << 50}}) {
    const auto size = ParseByteSize(text);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(size->bytes(), bytes) << text;
    EXPECT_EQ(ParseByteSize(ByteSizeText(*size))->bytes(), bytes) << text;
  }
  EXPECT_EQ(ByteSizeText(*ParseByteSize("81920 MiB")), "80 GiB");
  EXPECT_EQ(ByteSizeText(*ParseByteSize("1.5 KiB")), "1536 B");
}

TEST(ByteSizes, WithoutAUnitOrWithAWrongOneAreRefused) {
  for (const auto& [text, words] :
       std::vector<std::pair<const char*, const char*>>{{"80", "needs a unit"},
                                                        {"80 Gb", "has the unit 'Gb'"},
                                                        {"GiB", "is no amount of memory"},
                                                        {"-1 GiB", "is no amount of memory"},
                                                        {"1025 TiB", "is over 1024 TiB"},
                                                        {"", "is no amount of memory"}}) {
    const auto size = ParseByteSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(std::string(size.status().message()), HasSubstr(words)) << text;
  }
}

TEST(Elastic, TheMostIsTheCountOfTheResolvedSpec) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_min(2);
  spec.mutable_devices()->set_max(8);
  const auto resolved = ResolveSpec(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->devices().count(), 8);
  EXPECT_EQ(resolved->devices().min(), 2);
  EXPECT_FALSE(resolved->devices().has_max());
  EXPECT_EQ(resolved->train().replicas(), 8);
  const auto again = ResolveSpec(*resolved);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*resolved, *again));
}

TEST(Elastic, LimitsThatContradictEachOtherAreRefused) {
  v1::JobSpec spec = ValidSpec();
  spec.mutable_devices()->set_max(8);
  EXPECT_THAT(ViolatedFields(spec), ElementsAre("spec.devices.max"));  // the least is missing
  spec.mutable_devices()->set_min(2);
  spec.mutable_devices()->set_count(4);
  EXPECT_THAT(ViolatedFields(spec), ElementsAre("spec.devices.max"));  // both are a most
  spec.mutable_devices()->clear_max();
  EXPECT_THAT(ViolatedFields(spec), ElementsAre());
  spec.mutable_devices()->set_min(5);
  EXPECT_THAT(ViolatedFields(spec), ElementsAre("spec.devices.min"));
}

TEST(Elastic, ALabelHasAForm) {
  const auto fields = [](const std::vector<std::pair<std::string, std::string>>& labels) {
    v1::JobSpec spec = ValidSpec();
    spec.mutable_devices()->mutable_labels()->insert(labels.begin(), labels.end());
    return ViolatedFields(spec);
  };
  EXPECT_THAT(fields({{"zone", "a"}, {"gpu/link", "nv-4.0"}}), ElementsAre());
  EXPECT_THAT(fields({{"zone", "a"}, {"bad key", "x"}, {"empty", ""}}),
              UnorderedElementsAre("spec.devices.labels.bad key", "spec.devices.labels.empty"));
  std::vector<std::pair<std::string, std::string>> many;
  many.reserve(33);
  for (int i = 0; i < 33; ++i) many.emplace_back(std::to_string(i), "x");
  EXPECT_THAT(fields(many), ElementsAre("spec.devices.labels"));
}

TEST(Elastic, LabelsAndMemoryAreChangedAndCompared) {
  v1::JobSpec spec = ValidSpec();
  ASSERT_TRUE(ApplyChange(spec, "devices.labels.zone", "a").ok());
  ASSERT_TRUE(ApplyChange(spec, "devices.labels.example.com/rack", "\"12\"").ok());
  ASSERT_TRUE(ApplyChange(spec, "devices.memory", "80 GiB").ok());
  EXPECT_EQ(spec.devices().labels().at("zone"), "a");
  EXPECT_EQ(spec.devices().labels().at("example.com/rack"), "12");
  EXPECT_EQ(spec.devices().memory().bytes(), int64_t{80} << 30);
  v1::JobSpec other = spec;
  ASSERT_TRUE(ApplyChange(other, "devices.labels.zone", "").ok());
  const auto differences = DiffSpecs(spec, other);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].path, "devices.labels");
  EXPECT_EQ(differences[0].left_json, R"({"example.com/rack": "12", "zone": "a"})");
  EXPECT_EQ(differences[0].right_json, R"({"example.com/rack": "12"})");
  ASSERT_TRUE(ApplyChange(other, "devices.labels", R"({"zone": "b"})").ok());
  EXPECT_EQ(other.devices().labels().size(), 1u);
  EXPECT_THAT(std::string(ApplyChange(other, "devices.labels", "[1]").message()),
              HasSubstr("expected names and values"));
  EXPECT_THAT(std::string(ApplyChange(other, "devices.memory", "80").message()),
              HasSubstr("needs a unit"));
}

TEST(TimeLimits, AWarningComesBeforeItsLimit) {
  v1::JobSpec spec = ValidSpec();
  *spec.mutable_time_limit_warning() = ToProto(absl::Minutes(10));
  EXPECT_THAT(ViolatedFields(spec), ElementsAre("spec.time_limit_warning"));
  *spec.mutable_time_limit() = ToProto(absl::Minutes(10));
  EXPECT_THAT(ViolatedFields(spec), ElementsAre("spec.time_limit_warning"));
  *spec.mutable_time_limit() = ToProto(absl::Minutes(11));
  EXPECT_THAT(ViolatedFields(spec), ElementsAre());
}

TEST(Arrays, ElementsDifferByNameAndSeedAlone) {
  const v1::JobSpec resolved = *ResolveSpec(ValidSpec());
  const v1::JobSpec element = ArrayElement(resolved, 3);
  EXPECT_EQ(element.name(), "mlp-glyphs-3");
  EXPECT_EQ(element.train().seed(), 4u);
  std::vector<std::string> paths;
  for (const auto& difference : DiffSpecs(resolved, element)) paths.push_back(difference.path);
  EXPECT_THAT(paths, ElementsAre("name", "train.seed"));
  EXPECT_TRUE(ResolveSpec(element).ok());
}

}  // namespace
}  // namespace trainyard::spec
