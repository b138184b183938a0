// Finds the chunks that a question needs. If the steps of a series only ascend, as they do unless
// several ranks report the same metric, points are counted by the rows of their chunks, and only
// chunks with chosen points are unpacked.
#include "server/store/sqlite/metric_reads.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/series.h"
#include "server/store/sqlite/metric_rows.h"

namespace trainyard::store {
namespace {

constexpr char kFindName[] = "SELECT id FROM metric_names WHERE name = ?";
constexpr char kReadName[] = "SELECT name FROM metric_names WHERE id = ?";
constexpr char kOfJob[] = "WHERE job = ? ORDER BY cursor";
constexpr char kAfter[] = "WHERE job = ? AND cursor > ? ORDER BY cursor";
constexpr char kSeriesOfJob[] = "WHERE job = ? ORDER BY name, attempt";
constexpr char kSeriesOfName[] = "WHERE job = ? AND name = ? ORDER BY attempt";
constexpr char kSeriesBetween[] =
    "WHERE job = ? AND last_cursor > ? AND first_cursor <= ? ORDER BY name, attempt";
constexpr char kChunksBefore[] =
    "WHERE job = ? AND name = ? AND attempt = ? AND first_step < ? ORDER BY first_cursor";
constexpr char kChunksBetween[] =
    "WHERE job = ?1 AND name = ?2 AND attempt = ?3 AND first_cursor >= "
    "coalesce((SELECT max(first_cursor) FROM chunks WHERE job = ?1 AND name = ?2 AND attempt = ?3 "
    "AND first_cursor <= ?4), 0) AND first_cursor <= ?5 ORDER BY first_cursor";

// The longest stretch of cursors that is looked at as one.
constexpr int64_t kStretchMax = 10 * kMetricPageMax;

constexpr int64_t kNoCut = std::numeric_limits<int64_t>::max();

// Holds what one attempt wrote of a metric.
struct Piece {
  SeriesRow packed;                // has no points if there are no chunks
  std::vector<PackedPoint> fresh;  // after the packed ones

  bool empty() const { return packed.points == 0 && fresh.empty(); }
  int64_t first_step() const {
    int64_t first = packed.points > 0 ? packed.first_step : kNoCut;
    for (const PackedPoint& point : fresh) first = std::min(first, point.step);
    return first;
  }
  bool is_ascending() const {
    if (!packed.is_ascending) return false;
    std::optional<int64_t> last;
    if (packed.points > 0) last = packed.last_step;
    for (const PackedPoint& point : fresh) {
      if (last.has_value() && point.step <= *last) return false;
      last = point.step;
    }
    return true;
  }
};

using Pieces = std::map<int32_t, Piece>;  // by attempt

StoredPoint ToStored(const PackedPoint& point, const std::string& name, int32_t attempt) {
  return {{point.step, name, point.value, point.time_us}, attempt};
}

absl::StatusOr<std::optional<int64_t>> FindName(Database& db, const std::string& name) {
  std::optional<int64_t> id;
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kFindName).Bind(name), [&](const Statement& row) {
    id = row.Int(0);
    return absl::OkStatus();
  }));
  return id;
}

absl::StatusOr<std::string> ReadName(Database& db, int64_t id) {
  std::string name;
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadName).Bind(id), [&](const Statement& row) {
    name = row.Text(0);
    return absl::OkStatus();
  }));
  if (name.empty()) return error::CorruptFile(db.path(), "a point belongs to no metric");
  return name;
}

// Joins the pieces of one metric.
class Joiner {
 public:
  Joiner(Database& db, std::string name, const Pieces& pieces, const PointChoice& choice)
      : db_(db), name_(std::move(name)), pieces_(pieces), choice_(choice) {}

  absl::StatusOr<std::vector<StoredPoint>> Join() {
    // Each attempt is cut off at the first step of any newer one.
    int64_t cut = kNoCut;
    bool is_ascending = true;
    for (auto it = pieces_.rbegin(); it != pieces_.rend(); ++it) {
      cuts_[it->first] = cut;
      cut = std::min(cut, it->second.first_step());
      is_ascending = is_ascending && it->second.is_ascending();
    }
    if (is_ascending) return Choose();
    std::vector<StoredPoint> points;
    for (const auto& [attempt, piece] : pieces_) {
      TY_RETURN_IF_ERROR(ReadAll(attempt, piece, points));
    }
    return ThinOut(MergeAttempts(std::move(points)), choice_);
  }

 private:
  // Points that follow each other in the answer. They are those of a chunk, unless they are given.
  struct Stretch {
    int32_t attempt = 0;
    ChunkRow chunk;
    std::vector<PackedPoint> points;
    size_t size = 0;
  };

  template <typename Take>
  absl::Status ForEachChunk(int32_t attempt, const Piece& piece, Take take) {
    if (piece.packed.points == 0) return absl::OkStatus();
    const SeriesId& id = piece.packed.id;
    Statement& select = Chunks().Select(db_, kChunksBefore);
    select.Bind(id.job.value).Bind(id.name).Bind(attempt).Bind(cuts_.at(attempt));
    return Chunks().Read(select, take);
  }

  absl::Status ReadAll(int32_t attempt, const Piece& piece, std::vector<StoredPoint>& points) {
    TY_RETURN_IF_ERROR(ForEachChunk(attempt, piece, [&](const ChunkRow& chunk) -> absl::Status {
      TY_ASSIGN_OR_RETURN(const auto packed, ReadPacked(db_, chunk));
      for (const PackedPoint& point : packed) points.push_back(ToStored(point, name_, attempt));
      return absl::OkStatus();
    }));
    for (const PackedPoint& point : piece.fresh) {
      points.push_back(ToStored(point, name_, attempt));
    }
    return absl::OkStatus();
  }

  // Drops the points of other steps than those that are wanted.
  void Trim(std::vector<PackedPoint>& points, int64_t cut) const {
    std::erase_if(points, [&](const PackedPoint& point) {
      return point.step >= cut || point.step < choice_.first_step || point.step > choice_.last_step;
    });
  }

  absl::Status AddStretches(int32_t attempt, const Piece& piece, std::vector<Stretch>& stretches) {
    const int64_t cut = cuts_.at(attempt);
    TY_RETURN_IF_ERROR(ForEachChunk(attempt, piece, [&](const ChunkRow& chunk) -> absl::Status {
      if (chunk.last_step < choice_.first_step || chunk.first_step > choice_.last_step) {
        return absl::OkStatus();
      }
      Stretch stretch{attempt, chunk, {}, static_cast<size_t>(chunk.points)};
      if (chunk.last_step >= cut || chunk.first_step < choice_.first_step ||
          chunk.last_step > choice_.last_step) {
        TY_ASSIGN_OR_RETURN(stretch.points, ReadPacked(db_, chunk));
        Trim(stretch.points, cut);
        stretch.size = stretch.points.size();
        // Without points, it would be taken for one that is not read yet.
        if (stretch.size == 0) return absl::OkStatus();
      }
      stretches.push_back(std::move(stretch));
      return absl::OkStatus();
    }));
    Stretch fresh{attempt, {}, piece.fresh, 0};
    Trim(fresh.points, cut);
    fresh.size = fresh.points.size();
    if (fresh.size > 0) stretches.push_back(std::move(fresh));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StoredPoint>> Choose() {
    std::vector<Stretch> stretches;
    for (const auto& [attempt, piece] : pieces_) {
      TY_RETURN_IF_ERROR(AddStretches(attempt, piece, stretches));
    }
    size_t size = 0;
    for (const Stretch& stretch : stretches) size += stretch.size;
    const size_t parts = StretchesOf(choice_, size);
    return parts > 0 ? TakeExtremes(stretches, parts, size) : TakeEvenly(stretches, size);
  }

  absl::StatusOr<std::vector<StoredPoint>> TakeEvenly(std::vector<Stretch>& stretches,
                                                      size_t size) {
    const auto wanted = static_cast<size_t>(choice_.max_points);
    const size_t count = wanted == 0 ? size : std::min(wanted, size);
    std::vector<StoredPoint> points;
    points.reserve(count);
    auto stretch = stretches.begin();
    size_t before = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t index = ChosenIndex(i, count, size);
      while (index >= before + stretch->size) {
        stretch->points = {};
        before += (stretch++)->size;
      }
      TY_RETURN_IF_ERROR(Load(*stretch));
      points.push_back(ToStored(stretch->points[index - before], name_, stretch->attempt));
    }
    return points;
  }

  absl::Status Load(Stretch& stretch) {
    if (!stretch.points.empty()) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(stretch.points, ReadPacked(db_, stretch.chunk));
    return absl::OkStatus();
  }

  // Returns the first and the last point, and the extremes of each part between them.
  absl::StatusOr<std::vector<StoredPoint>> TakeExtremes(std::vector<Stretch>& stretches,
                                                        size_t parts, size_t size) {
    std::vector<StoredPoint> points;
    TY_RETURN_IF_ERROR(Load(stretches.front()));
    points.push_back(ToStored(stretches.front().points.front(), name_, stretches.front().attempt));
    size_t next = 0;    // the first stretch that reaches into the part
    size_t before = 0;  // the points before it
    for (size_t part = 0; part < parts; ++part) {
      const size_t begin = StretchBegin(part, parts, size);
      const size_t end = StretchBegin(part + 1, parts, size);
      TY_ASSIGN_OR_RETURN(const Extremes found, FindExtremes(stretches, next, before, begin, end));
      const auto two = found.TwoOf(begin, end);
      // None of the stretches that the part leaves behind is needed any more.
      while (before < end) {
        Stretch& stretch = stretches[next];
        for (const size_t index : {two.first, two.second}) {
          if (index < before || index >= before + stretch.size) continue;
          TY_RETURN_IF_ERROR(Load(stretch));
          points.push_back(ToStored(stretch.points[index - before], name_, stretch.attempt));
        }
        if (before + stretch.size > end) break;
        stretch.points = {};
        before += stretch.size;
        ++next;
      }
    }
    TY_RETURN_IF_ERROR(Load(stretches.back()));
    points.push_back(ToStored(stretches.back().points.back(), name_, stretches.back().attempt));
    return points;
  }

  // Finds the extremes of the points [begin, end), of which the first are in stretches[next], with
  // `before` points before it. The row of a chunk tells its least and its greatest value, so of the
  // chunks that belong to the part as a whole only those are read that have the extremes.
  absl::StatusOr<Extremes> FindExtremes(std::vector<Stretch>& stretches, size_t next, size_t before,
                                        size_t begin, size_t end) {
    const auto is_row_enough = [begin, end](const Stretch& stretch, size_t first) {
      return stretch.points.empty() && first >= begin && first + stretch.size <= end;
    };
    Extremes by_rows;
    size_t first = before;
    for (size_t i = next; first < end; first += stretches[i++].size) {
      if (!is_row_enough(stretches[i], first)) continue;
      by_rows.Add(2 * i, stretches[i].chunk.least);
      by_rows.Add(2 * i + 1, stretches[i].chunk.greatest);
    }
    Extremes found;
    first = before;
    for (size_t i = next; first < end; first += stretches[i++].size) {
      Stretch& stretch = stretches[i];
      if (is_row_enough(stretch, first) && by_rows.least() / 2 != i &&
          by_rows.greatest() / 2 != i) {
        continue;
      }
      TY_RETURN_IF_ERROR(Load(stretch));
      const size_t last = std::min(end, first + stretch.size);
      for (size_t j = std::max(begin, first); j < last; ++j) {
        found.Add(j, stretch.points[j - first].value);
      }
    }
    return found;
  }

  Database& db_;
  const std::string name_;
  const Pieces& pieces_;
  const PointChoice& choice_;
  std::map<int32_t, int64_t> cuts_;
};

// Reads points of a job in order of arrival.
class Pager {
 public:
  // Takes the series of the metrics in `wanted`, or all if it is null.
  Pager(Database& db, JobId job, const std::set<int64_t>* wanted)
      : db_(db), job_(job), wanted_(wanted) {}

  absl::StatusOr<std::vector<PointRow>> Read(int64_t cursor, int64_t limit) {
    if (limit <= 0) return std::vector<PointRow>();
    TY_RETURN_IF_ERROR(ReadChunks(cursor, limit));
    if (points_.empty()) TY_RETURN_IF_ERROR(ReadRows(cursor));
    std::sort(points_.begin(), points_.end(),
              [](const PointRow& a, const PointRow& b) { return a.point.cursor < b.point.cursor; });
    if (static_cast<int64_t>(points_.size()) > limit) points_.resize(static_cast<size_t>(limit));
    return std::move(points_);
  }

 private:
  bool IsWanted(const SeriesId& id) const {
    return wanted_ == nullptr || wanted_->count(id.name) > 0;
  }

  // Other series may fill all of a stretch of cursors, which is then followed by a longer one.
  absl::Status ReadChunks(int64_t cursor, int64_t limit) {
    TY_ASSIGN_OR_RETURN(const MetricJobRow about, ReadMetricJob(db_, job_));
    int64_t width = limit;
    while (points_.empty() && cursor < about.packed_cursor) {
      const int64_t until = std::min(cursor + width, about.packed_cursor);
      TY_RETURN_IF_ERROR(ReadBetween(cursor, until));
      cursor = until;
      width = std::min(2 * width, kStretchMax);
    }
    return absl::OkStatus();
  }

  // Reads the points of chunks whose cursors lie in (after, until], in no particular order.
  absl::Status ReadBetween(int64_t after, int64_t until) {
    std::vector<SeriesId> series;
    Statement& between = SeriesTable().Select(db_, kSeriesBetween);
    between.Bind(job_.value).Bind(after).Bind(until);
    TY_RETURN_IF_ERROR(SeriesTable().Read(between, [&](const SeriesRow& row) {
      if (IsWanted(row.id)) series.push_back(row.id);
      return absl::OkStatus();
    }));
    for (const SeriesId& id : series) {
      Statement& select = Chunks().Select(db_, kChunksBetween);
      select.Bind(job_.value).Bind(id.name).Bind(id.attempt).Bind(after).Bind(until);
      TY_RETURN_IF_ERROR(Chunks().Read(select, [&](const ChunkRow& chunk) -> absl::Status {
        if (chunk.last_cursor <= after) return absl::OkStatus();
        TY_ASSIGN_OR_RETURN(const auto packed, ReadPacked(db_, chunk));
        for (const PackedPoint& point : packed) {
          if (point.cursor > after && point.cursor <= until) points_.push_back({id, point});
        }
        return absl::OkStatus();
      }));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRows(int64_t cursor) {
    Statement& select = Points().Select(db_, kAfter);
    return Points().Read(select.Bind(job_.value).Bind(cursor), [this](const PointRow& row) {
      if (IsWanted(row.series)) points_.push_back(row);
      return absl::OkStatus();
    });
  }

  Database& db_;
  const JobId job_;
  const std::set<int64_t>* const wanted_;
  std::vector<PointRow> points_;
};

}  // namespace

absl::StatusOr<MetricSeries> QuerySeries(Database& db, JobId job,
                                         const std::vector<std::string>& names,
                                         const PointChoice& choice) {
  std::map<int64_t, Pieces> pieces;  // by name
  const auto take = [&pieces](const SeriesRow& row) {
    pieces[row.id.name][row.id.attempt].packed = row;
    return absl::OkStatus();
  };
  for (const std::string& name : names) {
    TY_ASSIGN_OR_RETURN(const std::optional<int64_t> id, FindName(db, name));
    if (!id.has_value()) continue;
    pieces[*id];
    Statement& select = SeriesTable().Select(db, kSeriesOfName);
    TY_RETURN_IF_ERROR(SeriesTable().Read(select.Bind(job.value).Bind(*id), take));
  }
  if (pieces.empty() && !names.empty()) return MetricSeries();
  if (names.empty()) {
    Statement& select = SeriesTable().Select(db, kSeriesOfJob);
    TY_RETURN_IF_ERROR(SeriesTable().Read(select.Bind(job.value), take));
  }
  Statement& fresh = Points().Select(db, kOfJob);
  TY_RETURN_IF_ERROR(Points().Read(fresh.Bind(job.value), [&](const PointRow& row) {
    if (names.empty() || pieces.contains(row.series.name)) {
      pieces[row.series.name][row.series.attempt].fresh.push_back(row.point);
    }
    return absl::OkStatus();
  }));
  MetricSeries series;
  for (const auto& [id, attempts] : pieces) {
    if (attempts.empty()) continue;
    TY_ASSIGN_OR_RETURN(const std::string name, ReadName(db, id));
    TY_ASSIGN_OR_RETURN(series[name], Joiner(db, name, attempts, choice).Join());
  }
  return series;
}

absl::StatusOr<MetricPage> ReadPage(Database& db, JobId job, const std::vector<std::string>& names,
                                    int64_t cursor, int64_t limit) {
  std::set<int64_t> wanted;
  for (const std::string& name : names) {
    TY_ASSIGN_OR_RETURN(const std::optional<int64_t> id, FindName(db, name));
    if (id.has_value()) wanted.insert(*id);
  }
  std::vector<PointRow> points;
  if (names.empty() || !wanted.empty()) {
    Pager pager(db, job, names.empty() ? nullptr : &wanted);
    TY_ASSIGN_OR_RETURN(points, pager.Read(cursor, limit));
  }
  MetricPage page;
  page.cursor = cursor;
  std::map<int64_t, std::string> texts;
  for (const PointRow& point : points) {
    std::string& name = texts[point.series.name];
    if (name.empty()) {
      TY_ASSIGN_OR_RETURN(name, ReadName(db, point.series.name));
    }
    page.points.push_back(ToStored(point.point, name, point.series.attempt));
    page.cursor = point.point.cursor;
  }
  return page;
}

}  // namespace trainyard::store
