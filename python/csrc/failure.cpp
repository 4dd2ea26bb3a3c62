#include "failure.h"

namespace goccl {

namespace {
std::string text_of(int code, const goccl_error& error, const char* what) {
  if (error.text[0] != '\0') {
    return error.text;
  }
  return c10::str("goccl: ", what, " failed with code ", code);
}
} // namespace

std::exception_ptr as_exception(int code, const std::string& text) {
  const c10::SourceLocation here = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (code) {
    case GOCCL_INVALID:
      return std::make_exception_ptr(c10::Error(here, text));
    case GOCCL_NOT_SUPPORTED:
      return std::make_exception_ptr(c10::NotImplementedError(here, text));
    default:
      return std::make_exception_ptr(c10::DistBackendError(here, text));
  }
}

std::exception_ptr as_exception(int code, const goccl_error& error, const char* what) {
  return as_exception(code, text_of(code, error, what));
}

void throw_failure(int code, const char* what, const std::string& text) {
  std::rethrow_exception(as_exception(code, c10::str(what, ": ", text)));
}

void throw_failure(int code, const goccl_error& error, const char* what) {
  std::rethrow_exception(as_exception(code, error, what));
}

} // namespace goccl
