// Compares the table of data sets with the proto, from which editors take the names.
#include "common/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/data_checks.h"
#include "common/spec/fields.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::datasets {
namespace {

using ::testing::UnorderedElementsAreArray;

TEST(Datasets, TheProtoListsTheSameNames) {
  std::vector<std::string> names;
  for (const Facts& facts : All()) names.emplace_back(facts.name);
  EXPECT_THAT(spec::RulesOf<v1::DataSpec>(v1::DataSpec::kDatasetFieldNumber).one_of(),
              UnorderedElementsAreArray(names));
}

TEST(Datasets, AsManyGlyphsMayBeAskedForAsAreMade) {
  for (const int field :
       {v1::DataSpec::kTrainSizeFieldNumber, v1::DataSpec::kTestSizeFieldNumber}) {
    EXPECT_EQ(spec::RulesOf<v1::DataSpec>(field).max(), kGlyphSamplesMax);
  }
}

TEST(Datasets, AreFoundByName) {
  for (const Facts& facts : All()) EXPECT_EQ(Find(facts.name), &facts);
  EXPECT_EQ(Find("glyph"), nullptr);
}

TEST(Datasets, AWorkerTellsThemByNameAndFolder) {
  const auto key = [](const std::string& dataset, const std::string& path = "") {
    v1::DataSpec data;
    data.set_dataset(dataset);
    if (!path.empty()) data.set_path(path);
    return spec::DatasetKey(data);
  };
  EXPECT_EQ(key("cifar10"), "cifar10");
  EXPECT_EQ(key("images", "pets"), "images:pets");
  EXPECT_EQ(key("tokens", "openwebtext"), "tokens:openwebtext");
  EXPECT_EQ(key("glyphs"), "") << "they are everywhere";
  EXPECT_EQ(key("images", "animals/pets"), "") << "workers do not look that deep";
  EXPECT_EQ(key("images", "."), "");
}

}  // namespace
}  // namespace trainyard::datasets
