SELECT
  *
FROM (
  SELECT
    "t1"."k0",
    COUNT(*) AS "rows",
    MIN("t1"."odd0") AS "min_odd0",
    MAX("t1"."odd0") AS "max_odd0",
    COUNT("t1"."i0_0") AS "n_i0_0",
    AVG("t1"."i0_0") AS "m_i0_0"
  FROM (
    SELECT
      CASE WHEN "t0"."country" <> '' THEN "t0"."country" ELSE NULL END AS "k0",
      CAST("t0"."bought" AS DOUBLE) AS "i0",
      CASE
        WHEN (
          CAST("t0"."bought" AS DOUBLE) <> 0
        )
        AND (
          CAST("t0"."bought" AS DOUBLE) <> 1
        )
        THEN CAST("t0"."bought" AS DOUBLE)
        ELSE NULL
      END AS "odd0",
      CAST("t0"."bought" AS DOUBLE) AS "i0_0"
    FROM "visits" AS "t0"
  ) AS "t1"
  GROUP BY
    1
) AS "t2"

SELECT
  *
FROM (
  SELECT
    "t6"."k0",
    "t6"."k1",
    "t6"."arm",
    COALESCE(SUM("t6"."rows"), 0) AS "rows",
    COALESCE(SUM("t6"."ok0"), 0) AS "ok0",
    COALESCE(SUM("t6"."have0"), 0) AS "have0",
    COALESCE(SUM(CASE WHEN NOT (
      "t6"."unit" IS NULL
    ) THEN "t6"."rows" ELSE NULL END), 0) AS "have_unit",
    COUNT("t6"."i0_0") AS "n_i0_0",
    AVG("t6"."i0_0") AS "m_i0_0",
    VARIANCE("t6"."i0_0") AS "c_i0_0",
    AVG("t6"."d_i0_0" * "t6"."d_i0_0" * "t6"."d_i0_0") AS "s_i0_0",
    AVG("t6"."d_i0_0" * "t6"."d_i0_0" * "t6"."d_i0_0" * "t6"."d_i0_0") - 3 AS "k_i0_0"
  FROM (
    SELECT
      "t5"."k0",
      "t5"."k1",
      "t5"."arm",
      "t5"."unit",
      "t5"."rows",
      "t5"."ok0",
      "t5"."i0_0",
      "t5"."have0",
      CASE
        WHEN CASE
          WHEN AVG("t5"."d_i0_0" * "t5"."d_i0_0") OVER (
            PARTITION BY "t5"."k0", "t5"."k1", "t5"."arm"
            ORDER BY NULL ASC
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
          ) < 0
          THEN CAST('NaN' AS DOUBLE)
          ELSE SQRT(
            AVG("t5"."d_i0_0" * "t5"."d_i0_0") OVER (
              PARTITION BY "t5"."k0", "t5"."k1", "t5"."arm"
              ORDER BY NULL ASC
              ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            )
          )
        END > 0
        THEN "t5"."d_i0_0" / CASE
          WHEN AVG("t5"."d_i0_0" * "t5"."d_i0_0") OVER (
            PARTITION BY "t5"."k0", "t5"."k1", "t5"."arm"
            ORDER BY NULL ASC
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
          ) < 0
          THEN CAST('NaN' AS DOUBLE)
          ELSE SQRT(
            AVG("t5"."d_i0_0" * "t5"."d_i0_0") OVER (
              PARTITION BY "t5"."k0", "t5"."k1", "t5"."arm"
              ORDER BY NULL ASC
              ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            )
          )
        END
        ELSE NULL
      END AS "d_i0_0"
    FROM (
      SELECT
        "t4"."k0",
        "t4"."k1",
        "t4"."arm",
        "t4"."unit",
        "t4"."rows",
        "t4"."ok0",
        "t4"."i0_0",
        "t4"."have0",
        CASE WHEN ABS("t4"."i0_0") < 1e+70 THEN "t4"."i0_0" ELSE NULL END - AVG(CASE WHEN ABS("t4"."i0_0") < 1e+70 THEN "t4"."i0_0" ELSE NULL END) OVER (
          PARTITION BY "t4"."k0", "t4"."k1", "t4"."arm"
          ORDER BY NULL ASC
          ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS "d_i0_0"
      FROM (
        SELECT
          "t3"."k0",
          "t3"."k1",
          "t3"."arm",
          "t3"."unit",
          "t3"."rows",
          CASE WHEN NOT (
            "t3"."unit" IS NULL
          ) THEN "t3"."ok0" ELSE 0 END AS "ok0",
          CASE
            WHEN CASE WHEN NOT (
              "t3"."unit" IS NULL
            ) THEN "t3"."ok0" ELSE 0 END > 0
            THEN "t3"."i0_0"
            ELSE NULL
          END AS "i0_0",
          "t3"."ok0" AS "have0"
        FROM (
          SELECT
            "t2"."k0",
            "t2"."k1",
            "t2"."arm",
            "t2"."unit",
            COUNT(*) AS "rows",
            COUNT("t2"."i0_0") AS "ok0",
            COALESCE(SUM("t2"."i0_0"), 0) AS "i0_0"
          FROM (
            SELECT
              "t1"."k0",
              "t1"."k1",
              "t1"."arm",
              "t1"."unit",
              "t1"."i0",
              "t1"."i0" AS "i0_0"
            FROM (
              SELECT
                CASE WHEN "t0"."country" <> '' THEN "t0"."country" ELSE NULL END AS "k0",
                CASE
                  WHEN ABS(
                    (
                      CAST("t0"."age" AS DOUBLE) / 10.0
                    ) - CASE
                      WHEN ABS((
                        CAST("t0"."age" AS DOUBLE) / 10.0
                      ) + 0.5) < 9007199254740992.0
                      THEN CAST(CAST(FLOOR(
                        CASE
                          WHEN ABS((
                            CAST("t0"."age" AS DOUBLE) / 10.0
                          ) + 0.5) < 9007199254740992.0
                          THEN (
                            CAST("t0"."age" AS DOUBLE) / 10.0
                          ) + 0.5
                          ELSE NULL
                        END
                      ) AS BIGINT) AS DOUBLE)
                      ELSE (
                        CAST("t0"."age" AS DOUBLE) / 10.0
                      ) + 0.5
                    END
                  ) < (
                    (
                      ABS(CAST("t0"."age" AS DOUBLE) / 10.0) + 1
                    ) * 1e-09
                  )
                  THEN CASE
                    WHEN ABS((
                      CAST("t0"."age" AS DOUBLE) / 10.0
                    ) + 0.5) < 9007199254740992.0
                    THEN CAST(CAST(FLOOR(
                      CASE
                        WHEN ABS((
                          CAST("t0"."age" AS DOUBLE) / 10.0
                        ) + 0.5) < 9007199254740992.0
                        THEN (
                          CAST("t0"."age" AS DOUBLE) / 10.0
                        ) + 0.5
                        ELSE NULL
                      END
                    ) AS BIGINT) AS DOUBLE)
                    ELSE (
                      CAST("t0"."age" AS DOUBLE) / 10.0
                    ) + 0.5
                  END
                  ELSE CASE
                    WHEN ABS(CAST("t0"."age" AS DOUBLE) / 10.0) < 9007199254740992.0
                    THEN CAST(CAST(FLOOR(
                      CASE
                        WHEN ABS(CAST("t0"."age" AS DOUBLE) / 10.0) < 9007199254740992.0
                        THEN CAST("t0"."age" AS DOUBLE) / 10.0
                        ELSE NULL
                      END
                    ) AS BIGINT) AS DOUBLE)
                    ELSE CAST("t0"."age" AS DOUBLE) / 10.0
                  END
                END AS "k1",
                "t0"."arm",
                "t0"."user_id" AS "unit",
                CASE
                  WHEN NOT (
                    "t0"."revenue" IN (CAST('Inf' AS DOUBLE), CAST('-Inf' AS DOUBLE))
                    OR (
                      "t0"."revenue" = CAST('NaN' AS DOUBLE)
                    )
                  )
                  THEN "t0"."revenue"
                  ELSE NULL
                END AS "i0"
              FROM "visits" AS "t0"
            ) AS "t1"
          ) AS "t2"
          GROUP BY
            1,
            2,
            3,
            4
        ) AS "t3"
      ) AS "t4"
    ) AS "t5"
  ) AS "t6"
  GROUP BY
    1,
    2,
    3
) AS "t7"
