// Builds the tree from yaml-cpp's events, because yaml-cpp's own tree would expand aliases and
// forget the places of keys.
#include "common/yaml/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::yaml {
namespace {

int Characters(absl::string_view text) {
  int count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
  return count;
}

// Builds the tree from yaml-cpp's events. The limits are applied as the events come, and no alias
// is ever expanded. A container is open while its frame is on the stack.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(absl::string_view text) {
    // yaml-cpp counts columns in bytes. The text of the lines is needed to turn them into
    // characters.
    size_t start = 0;
    while (start <= text.size()) {
      const size_t end = std::min(text.find('\n', start), text.size());
      lines_.push_back(text.substr(start, end - start));
      start = end + 1;
    }
  }

  YamlDocument Take() && { return std::move(document_); }
  void Refuse(const Place& place, std::string message) {
    document_.mistakes.push_back({place, "", std::move(message)});
  }
  // Refuses the whole tree, because it is not what the user wrote.
  void GiveUp(const Place& place, std::string message) {
    Refuse(place, std::move(message));
    document_.is_complete = false;
  }
  void RefuseSyntax(const YAML::Exception& exception) {
    const Place place = PlaceOf(exception.mark);
    const size_t line = static_cast<size_t>(place.line - 1);
    const absl::string_view text = line < lines_.size() ? lines_[line] : absl::string_view();
    const absl::string_view indent = text.substr(0, text.find_first_not_of(" \t"));
    if (indent.find('\t') != absl::string_view::npos) {
      GiveUp(place, "a tab indents this line; YAML takes spaces only");
    } else {
      GiveUp(place, absl::StrCat("the YAML cannot be read: ", exception.msg));
    }
  }

  Place PlaceOf(const YAML::Mark& mark) const {
    Place place;
    if (mark.is_null()) return place;
    place.line = mark.line + 1;
    const size_t line = static_cast<size_t>(std::max(mark.line, 0));
    const size_t bytes = static_cast<size_t>(std::max(mark.column, 0));
    place.column = 1 + (line < lines_.size() ? Characters(lines_[line].substr(0, bytes))
                                             : static_cast<int>(bytes));
    return place;
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    Begin(node, mark, "", anchor);
    Add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node;
    node.place = PlaceOf(mark);
    node.is_refused = true;
    Refuse(node.place, "aliases (*name) are not accepted; write the value out");
    Add(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
    node.is_quoted = tag == "!";
    Begin(node, mark, tag, anchor);
    const bool is_one_line = value.find('\n') == std::string::npos;
    node.place.length = is_one_line ? std::max(1, Characters(value) + (node.is_quoted ? 2 : 0)) : 1;
    Add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;
    std::string key;
    Place key_place;
    std::unordered_map<std::string, int> line_of_key;
  };

  void Begin(YamlNode& node, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    node.place = PlaceOf(mark);
    if (anchor != 0) Refuse(node.place, "anchors (&name) are not accepted; write the value out");
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(node.place, absl::StrCat("the tag '", tag, "' is not accepted; leave it out"));
    }
    ++nodes_;
    if (nodes_ == kNodesMax + 1) {
      GiveUp(node.place, absl::StrCat("the file has more than ", FormatCount(kNodesMax),
                                      " values; expected fewer"));
    }
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    Frame frame;
    frame.node.kind = kind;
    Begin(frame.node, mark, tag, anchor);
    if (stack_.size() == static_cast<size_t>(kDepthMax)) {
      GiveUp(frame.node.place,
             absl::StrCat("nested deeper than ", kDepthMax, " levels; expected fewer"));
    }
    stack_.push_back(std::move(frame));
  }

  void Close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    Add(std::move(node));
  }

  // Puts a finished node into the container that is open. Nodes over the limit are counted, but not
  // kept.
  void Add(YamlNode node) {
    if (stack_.empty()) {
      document_.root = std::move(node);
      return;
    }
    if (nodes_ > kNodesMax || stack_.size() > static_cast<size_t>(kDepthMax)) return;
    Frame& frame = stack_.back();
    if (frame.node.kind == YamlNode::Kind::kList) {
      frame.node.elements.push_back(std::move(node));
    } else if (!frame.has_key) {
      frame.has_key = true;
      frame.key_place = node.place;
      frame.key = node.text;
      if (node.kind != YamlNode::Kind::kScalar) {
        Refuse(node.place, "a key must be a name");
      }
    } else {
      frame.has_key = false;
      const auto [known, is_new] = frame.line_of_key.emplace(frame.key, frame.key_place.line);
      if (is_new) {
        frame.node.entries.push_back({frame.key, frame.key_place, std::move(node)});
      } else {
        Refuse(frame.key_place,
               absl::StrCat("the key '", frame.key,
                            "' is here a second time; the first is on line ", known->second));
      }
    }
  }

  std::vector<absl::string_view> lines_;
  YamlDocument document_;
  std::vector<Frame> stack_;
  size_t nodes_ = 0;
};

}  // namespace

YamlDocument ParseYaml(absl::string_view text) {
  YamlDocument refused;
  refused.is_complete = false;
  if (text.size() > kFileBytesMax) {
    refused.mistakes.push_back({Place(), "",
                                absl::StrCat("the file is too long; expected at most ",
                                             FormatBytes(static_cast<int64_t>(kFileBytesMax)))});
    return refused;
  }
  if (!IsUtf8(text)) {
    refused.mistakes.push_back({Place(), "", "the file is not UTF-8 text"});
    return refused;
  }
  TreeBuilder builder(text);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder) && parser) {
      // The further documents get a handler of their own, so that the first one stays as it is.
      TreeBuilder rest(text);
      if (parser.HandleNextDocument(rest)) {
        builder.Refuse(Place(), "the file has more than one document; expected one, without ---");
      }
    }
  } catch (const YAML::Exception& exception) {
    builder.RefuseSyntax(exception);
  }
  return std::move(builder).Take();
}

}  // namespace trainyard::yaml
