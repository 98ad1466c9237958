// Ferry's errors as the exceptions of ferry._errors, with what was waited for as attributes.
#include <ferry/error.h>

#include <cstring>

#include "python/src/base/guard.h"
#include "python/src/base/parts.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "InvalidArgument";
    case ErrorKind::out_of_order:
      return "OutOfOrder";
    case ErrorKind::peer_missing:
      return "PeerMissing";
    case ErrorKind::aborted:
      return "Aborted";
    case ErrorKind::unsupported:
      return "Unsupported";
    case ErrorKind::io:
      return "FileRefused";
    case ErrorKind::system:
      return "SystemRefused";
  }
  return "Error";
}

const char* name_of(Absence absence) {
  switch (absence) {
    case Absence::late:
      return "late";
    case Absence::aborted:
      return "aborted";
    case Absence::ended:
      return "ended";
    case Absence::left:
      return "left";
  }
  return "late";
}

// What another rank said may end within a character.
nb::object decoded(const char* what) {
  return nb::steal(PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace"));
}

nb::object exception_of(const char* name, const char* what) {
  return nb::module_::import_("ferry._errors").attr(name)(decoded(what));
}
nb::object exception_of(const Error& error) { return exception_of(class_of(error.kind()), error.what()); }

void describe_wait(const nb::object& exception, const WaitRecord& record) {
  exception.attr("rank") = record.missing_rank;
  exception.attr("my_rank") = record.my_rank;
  exception.attr("reported_by") = record.reported_by;
  exception.attr("operation") = to_string(record.operation);
  exception.attr("phase") = to_string(record.phase);
  exception.attr("token") = record.token;
  exception.attr("absence") = name_of(record.absence);
}

void raise(const nb::object& exception) { PyErr_SetObject(exception.type().ptr(), exception.ptr()); }

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Aborted& error) {
    const nb::object exception = exception_of(error);
    describe_wait(exception, error.record());
    exception.attr("reason") = decoded(error.reason().c_str());
    raise(exception);
  } catch (const PeerMissing& error) {
    const nb::object exception = exception_of(error);
    describe_wait(exception, error.record());
    raise(exception);
  } catch (const Error& error) {
    raise(exception_of(error));
  } catch (const Closed& error) {
    raise(exception_of("Closed", error.what()));
  }
}

}  // namespace

void add_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace ferry::python
