// Lists the public data sets. Every file must match its MD5, so a publisher may move it to another
// place, but cannot change it unnoticed.
#include "client/commands/data_sources.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/datasets.h"

namespace trainyard::commands {

const std::vector<DataSource>& DataSources() {
  static const auto* sources = new std::vector<DataSource>{
      // The MD5s come from https://www.cs.toronto.edu/~kriz/cifar.html, "binary version".
      {datasets::kCifar10.name,
       "https://www.cs.toronto.edu/~kriz",
       {{"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"}}},
      {datasets::kCifar100.name,
       "https://www.cs.toronto.edu/~kriz",
       {{"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"}}},
      // The MD5s come from the README of zalandoresearch/fashion-mnist.
      {datasets::kFashionMnist.name,
       "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
       {{"train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
        {"train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"},
        {"t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"},
        {"t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"}}},
      // This is the copy that torchvision downloads, and these are torchvision's MD5s. The
      // publisher's site often refuses downloads.
      {datasets::kMnist.name,
       "https://ossci-datasets.s3.amazonaws.com/mnist",
       {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
        {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"},
        {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"},
        {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"}}},
      // Nobody publishes an MD5 of this file. This is the MD5 of a copy with the length and the 65
      // different characters that nanoGPT reports.
      {datasets::kTinyShakespeare.name,
       "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
       {{"input.txt", "6fb458f1232090904fb40fe944165e91"}}},
  };
  return *sources;
}

std::string DataSourceNames() {
  return absl::StrJoin(DataSources(), ", ", [](std::string* out, const DataSource& source) {
    absl::StrAppend(out, source.dataset);
  });
}

const DataSource* FindDataSource(absl::string_view dataset) {
  for (const DataSource& source : DataSources()) {
    if (source.dataset == dataset) return &source;
  }
  return nullptr;
}

std::string SourceUrl(const DataSource& source, const SourceFile& file, const std::string& mirror) {
  if (mirror.empty()) return absl::StrCat(source.url, "/", file.name);
  if (absl::StrContains(mirror, "://")) {
    return absl::StrCat(absl::StripSuffix(mirror, "/"), "/", file.name);
  }
  const std::filesystem::path folder = std::filesystem::absolute(mirror);
  return absl::StrCat("file://", (folder / std::string(file.name)).string());
}

}  // namespace trainyard::commands
