// Vectors that are ascending and hold each value once. Pure.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace cmi::events {

template <class T>
void sort_unique(std::vector<T>* v) {
  std::sort(v->begin(), v->end());
  v->erase(std::unique(v->begin(), v->end()), v->end());
}

// Adds what is in `other`, which is such a vector too.
template <class T>
void merge_unique(std::vector<T>* v, const std::vector<T>& other) {
  std::vector<T> both;
  both.reserve(v->size() + other.size());
  std::set_union(v->begin(), v->end(), other.begin(), other.end(), std::back_inserter(both));
  v->swap(both);
}

}  // namespace cmi::events
