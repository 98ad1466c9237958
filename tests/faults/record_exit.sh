#!/bin/sh
# record_exit.sh FOLDER COMMAND...: runs the command as one process of a job and leaves its exit code in FOLDER.
folder=$1
shift
"$@"
code=$?
echo $code >"$folder/exit.$OMPI_COMM_WORLD_RANK"
exit $code
