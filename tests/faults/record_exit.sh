#!/bin/sh
# record_exit.sh FOLDER COMMAND...: runs the command as one process of a job. FOLDER gets its process id, what it says
# on standard error and, once it has ended, its exit code.
folder=$1
rank=$OMPI_COMM_WORLD_RANK
shift
"$@" 2>"$folder/said.$rank" &
child=$!
echo $child >"$folder/pid.part.$rank"
mv "$folder/pid.part.$rank" "$folder/pid.$rank"
wait $child
code=$?
echo $code >"$folder/exit.part.$rank"
mv "$folder/exit.part.$rank" "$folder/exit.$rank"
exit $code
